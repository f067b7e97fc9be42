"""Programs that a policy might write, and what each deserves. Each does what it must not; where it says whether it
could, the verdict is 1 if it could not.
"""

from __future__ import annotations

from textwrap import indent

GOOD = "def add(a, b): return a + b\n"
TESTS: list[object] = ["assert add(1, 2) == 3", "assert add(10, 20) == 30"]
PRINTS: list[object] = [{"input": "", "output": "3"}]
Program = tuple[str, list[object], object]
"""A program, its tests, and what it deserves: a number, or None for either."""


def right(program: str, tests: list[object] = TESTS) -> Program:
    return program, tests, 1.0


def wrong(program: str, tests: list[object] = TESTS) -> Program:
    return program, tests, 0.0


def either(program: str, tests: list[object] = TESTS) -> Program:
    return program, tests, None


def refused(act: str, before: str = "") -> str:
    """A program that is right unless it could do something."""
    return (
        f"{before}\ndone = False\ntry:\n{indent(act, '    ')}\n    done = True\nexcept BaseException: pass\ndef add(a,"
        " b): return 0 if done else a + b\n"
    )


def all_refused(acts: list[str], before: str = "") -> str:
    """A program that is right unless it could do one of several things."""
    tries = "".join(
        f"try:\n{indent(act, '    ')}\n    done.append({number})\nexcept BaseException: pass\n"
        for number, act in enumerate(acts)
    )
    return f"{before}\ndone = []\n{tries}def add(a, b): return done or a + b\n"


def in_place_of_the_output(act: str) -> str:
    return (
        "import os\nfor name in ('stdout.txt', 'stderr.txt'):\n    try: os.unlink(name)\n    except OSError: pass\n   "
        f" {act}\nprint(3)"
    )


SYSTEM_CALL = (
    "import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\ndef call(*given):\n    result = libc.syscall(*given)\n   "
    " assert result >= 0\n    return result\n"
)
SOCKET = (
    "import os, socket, stat\nplace = next(n for n in range(3, 99) if stat.S_ISSOCK(os.fstat(n).st_mode))\n"
    "socket = socket.socket(fileno=place)\nheard, said = socket.makefile('r'), socket.makefile('w')\n"
)

# name -> program, tests, what it deserves; `{name}` is filled in with what stands outside: see `Outside` in
# test_hostile.py.
OUTPUT: dict[str, Program] = {
    "removes what is in its folder": right("import os\nfor name in os.listdir('.'): os.remove(name)\nprint(3)", PRINTS),
    "a fifo in the place of its output": right(in_place_of_the_output("os.mkfifo(name)"), PRINTS),
    "a folder in the place of its output": right(in_place_of_the_output("os.mkdir(name)"), PRINTS),
    "a link to endless zeros": right(in_place_of_the_output("os.symlink('/dev/zero', name)"), PRINTS),
    "a device in the place of its output": right(
        in_place_of_the_output("os.system(f'mknod {name} b 254 0 2>/dev/null')"), PRINTS
    ),
    "another file as its output": wrong(
        "import os\nos.symlink('{secret}', 'stdout.txt')", [{"input": "", "output": "sesame"}]
    ),
    "prints for ever": wrong("while True: print('spam' * 1000)", PRINTS),
    "complains for ever": wrong("import sys\nwhile True: sys.stderr.write('spam' * 1000)", PRINTS),
    "an output of a petabyte": right("import os\ntry: os.ftruncate(1, 2**50)\nexcept OSError: print(3)", PRINTS),
    "closes its output": wrong("import os\nos.close(1)\nprint(3)", PRINTS),
    "writes into its input": right(
        "import os\ntry: os.lseek(0, 0, 0), os.write(0, b'x' * 100)\nexcept OSError: pass\nprint(3)", PRINTS
    ),
}
FILES: dict[str, Program] = {
    "20,000 nested folders": either(
        "import os\nfor _ in range(20000):\n    try: os.mkdir('d'); os.chdir('d')\n    except OSError: break\n" + GOOD
    ),
    "100,000 files": wrong("for number in range(100000): open(f'f{number}', 'w').close()\n" + GOOD),
    "480 MB in 60 files": wrong(
        "for number in range(60): open(f'f{number}', 'wb').write(b'x' * 8_000_000)\n" + GOOD, TESTS[:1]
    ),
    "160 MB in files that no folder shows": wrong(
        "import os, time\nopened = []\nfor number in range(20):\n"
        "    opened.append(open('f', 'wb')); opened[-1].write(b'x' * 8_000_000); os.unlink('f')\ntime.sleep(60)",
        TESTS[:1],
    ),
    "160 MB of shared memory": wrong(
        "for number in range(20): open(f'/dev/shm/groupwise-test-{number}', 'wb').write(b'x' * 8_000_000)\n" + GOOD,
        TESTS[:1],
    ),
    "a file of a terabyte": right(refused("open('f', 'wb').truncate(10**12)")),
    "the neighbour's solution": wrong(
        "import glob, os, time\nadd = None\nuntil = time.time() + 2\nwhile add is None and time.time() < until:\n  "
        "  for name in glob.glob('/tmp/*/solution.py') + glob.glob('{temporary}/*/solution.py') +"
        " glob.glob('/proc/[0-9]*/cwd/solution.py'):\n        try: text = open(name).read()\n        except"
        " OSError: continue\n        if 'glo' + 'b' not in text and 'return a + b' in text: exec(text)\n   "
        " time.sleep(0.01)",
        TESTS[:1],
    ),
    "reads what is not its own": right(
        all_refused(["open('{secret}').read()", "os.listdir('{outside}')", "os.listdir('{home}/.ssh')"], "import os")
    ),
    "reads through links": right(
        all_refused(
            [
                "os.symlink('{secret}', 'a'); open('a').read()",
                "os.link('{secret}', 'b')",
                "os.symlink('{outside}', 'c'); os.listdir('c')",
            ],
            "import os",
        )
    ),
    "changes what is not its own": right(
        all_refused(
            [
                "open('{secret}', 'a')",
                "os.remove('{secret}')",
                "os.rename('{secret}', 'x')",
                "open('{outside}/new', 'w')",
                "os.mkdir('{outside}/new')",
                "os.close(os.open('{secret}', os.O_RDONLY | os.O_TRUNC))",
                "os.truncate('{secret}', 0)",
                "open('/tmp/../etc/passwd', 'a')",
                "os.setxattr('{secret}', 'user.a', b'b')",
                "open(os.__file__, 'a')",
                "open('{tester}', 'a')",
            ],
            "import os",
        )
    ),
    "shuts what is not its own": right(
        "import os\nfor act in (os.chmod, os.utime, lambda path, _: os.chown(path, 12345, 12345)):\n"
        "    try: act('{secret}', 0 if act is os.chmod else (1, 1))\n    except OSError: pass\n" + GOOD
    ),
    "shuts its own folder": right(
        "import os\nos.makedirs('a/b/c')\nopen('a/b/f', 'w')\nfor name in ('a/b/c', 'a/b', 'a', '.'): os.chmod(name,"
        " 0)\n" + GOOD
    ),
    "leaves links for who cleans up": right(
        "import os\nos.symlink('{outside}', 'a')\nos.mkdir('b')\nos.symlink('{outside}', 'b/c')\n" + GOOD
    ),
    "moves its own folder": right(
        "import os\ntry: os.rename(os.getcwd(), os.getcwd() + '-x')\nexcept OSError: pass\n" + GOOD
    ),
}
MEMORY: dict[str, Program] = {
    "12 times 200 MiB": wrong(
        "import os, time\nfor number in range(12):\n    if os.fork() == 0:\n        held = bytearray(200 * 2**20)\n    "
        "    for at in range(0, len(held), 4096): held[at] = 1\n        time.sleep(60); os._exit(0)\ntime.sleep(8)\n"
        + GOOD,
        TESTS[:1],
    ),
    "3 GB": wrong("held = bytearray(3 * 10**9)\n" + GOOD),
    "shared memory of many processes": wrong(
        "import mmap, os, time\nfor number in range(12):\n    if os.fork() == 0:\n        held = mmap.mmap(-1, 200 *"
        " 2**20)\n        for at in range(0, len(held), 4096): held[at] = 1\n        time.sleep(60);"
        " os._exit(0)\ntime.sleep(8)\n" + GOOD,
        TESTS[:1],
    ),
    "memory without a name": right(refused("os.memfd_create('x')", "import os")),
    "memory and queues of the system": right(
        all_refused(
            [f"call({number}, 0x67770001, 2**24, 0o1666)" for number in (29, 64, 68)]
            + ["call(240, b'groupwise', 0o102, 0o600, 0)"],
            SYSTEM_CALL,
        )
    ),
    "falls over": wrong("import ctypes\nctypes.string_at(0)\n"),
    "a dump of its memory": wrong(
        refused("resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))", "import resource") + "import os\nos.abort()"
    ),
    "raises its limits": right(
        all_refused(
            [
                f"resource.setrlimit(resource.RLIMIT_{name}, (-1, -1))"
                for name in ("AS", "CPU", "FSIZE", "NPROC", "NOFILE")
            ],
            "import resource",
        )
    ),
}
PROCESSES: dict[str, Program] = {
    "starts itself again and again": wrong(
        "import os\nwhile True:\n    try: os.fork()\n    except OSError: pass", TESTS[:1]
    ),
    "starts threads without end": either(
        "import threading, time\ntry:\n    while True: threading.Thread(target=time.sleep, args=(60,),"
        " daemon=True).start()\nexcept RuntimeError: pass\n" + GOOD,
        TESTS[:1],
    ),
    "signals everybody": right(
        all_refused(
            ["os.kill({victim}, signal.SIGURG)", "os.kill({trainer}, signal.SIGURG)"],
            "import os, signal\ntry: os.kill(-1, signal.SIGURG)\nexcept OSError: pass",
        )
    ),
    "leaves daemons": right(
        "import os, subprocess\nfor _ in range(3):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0: os.execlp('sleep', 'sleep', '{marker}')\n"
        "        os._exit(0)\n" + GOOD
    ),
    "will not end": wrong(
        "import signal, time\nfor number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:"
        " signal.signal(number, signal.SIG_IGN)\nwhile True: time.sleep(1)",
        TESTS[:1],
    ),
    "stops itself": wrong(
        "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\nwhile True: os.sched_yield()", TESTS[:1]
    ),
    "waits for ever": wrong("import time\ntime.sleep(1000)", TESTS[:1]),
    "works for ever, four times": wrong("import os\nos.fork(); os.fork()\nwhile True: pass", TESTS[:1]),
    "works for ever in those that nobody counts": wrong(
        "import os, signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True:\n    if os.fork() == 0:\n   "
        "     for _ in range(10**6): pass\n        os._exit(0)",
        TESTS[:1],
    ),
    "looks into who started it": right(
        all_refused(
            [
                *(f"open(f'/proc/{{os.getppid()}}/{name}', 'rb').read(1)" for name in ("mem", "environ", "maps")),
                "os.listdir(f'/proc/{os.getppid()}/fd')",
                *(f"open('/proc/{{victim}}/{name}', 'rb').read(1)" for name in ("mem", "environ", "maps", "cmdline")),
                "os.listdir('/proc/{victim}/root')",
                "call(101, 16, {victim}, 0, 0)",
                "call(101, 16, os.getppid(), 0, 0)",
                (
                    "call(310, os.getppid(), ctypes.byref((ctypes.c_long * 2)()), 1, ctypes.byref((ctypes.c_long *"
                    " 2)()), 1, 0)"
                ),
            ],
            "import os\n" + SYSTEM_CALL,
        )
    ),
    "changes the limits of others": right(
        all_refused(
            [
                "resource.prlimit({victim}, resource.RLIMIT_NOFILE, (1, 1))",
                "os.sched_setaffinity({victim}, {0})",
                "os.setpriority(os.PRIO_PROCESS, {victim}, 19)",
                "fcntl.fcntl(socket.socketpair()[0], fcntl.F_SETOWN, {victim})",
            ],
            "import fcntl, os, resource, socket",
        )
    ),
}
KERNEL: dict[str, Program] = {
    "the network": right(
        all_refused(
            [
                "socket.create_connection(('127.0.0.1', {tcp}), 2)",
                "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {udp}))",
                "socket.create_connection(('192.0.2.1', 80), 2)",
                "socket.socket(socket.AF_VSOCK)",
                "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
                "socket.socket(socket.AF_ALG, socket.SOCK_SEQPACKET)",
                "socket.socket(socket.AF_NETLINK, socket.SOCK_RAW)",
            ],
            "import socket",
        )
    ),
    "sockets of this machine": right(
        all_refused(
            [
                "socket.socket(socket.AF_UNIX).connect('\\0{abstract}')",
                "socket.socket(socket.AF_UNIX).connect('{outside}/socket')",
            ],
            "import socket",
        )
    ),
    "mounts and roots": right(
        all_refused(
            [
                "call(165, b'none', b'/tmp', b'tmpfs', 0, 0)",
                "call(166, b'/tmp', 2)",
                "call(166, b'/proc', 2)",
                "os.chroot('.')",
                "call(155, b'.', b'.')",
                "call(165, b'none', b'/', 0, 32, 0)",
                "call(308, 0, 0)",
            ],
            "import os\n" + SYSTEM_CALL,
        )
    ),
    "namespaces of its own": right(
        all_refused(
            [f"call(272, {flag})" for flag in (0x10000000, 0x20000, 0x40000000)]
            + ["call(56, 0x10000011, 0, 0, 0, 0)", "call(435, 0, 0)"],
            SYSTEM_CALL,
        )
    ),
    "devices": right(
        all_refused(
            [
                "os.mknod('disk', 0o60600, os.makedev(254, 0)); open('disk', 'rb')",
                "os.mknod('mem', 0o20600, os.makedev(1, 1)); open('mem', 'rb')",
                "os.listdir('/dev/pts')",
            ],
            "import os",
        )
    ),
    "settings of the kernel": right(
        all_refused(
            [
                f"open('{path}', 'r+')"
                for path in (
                    "/proc/sys/kernel/core_pattern",
                    "/proc/sysrq-trigger",
                    "/sys/power/state",
                    "/proc/self/oom_score_adj",
                )
            ]
        )
    ),
    "keys and the rest of the kernel": right(
        all_refused(
            [
                "call(250, 0, -3, 0)",
                "call(425, 1, 0)",
                "call(321, 0, 0, 0)",
                "call(298, 0, 0, -1, -1, 0)",
                "call(103, 3, 0, 0)",
                "call(323, 1)",
            ],
            SYSTEM_CALL,
        )
    ),
    "rights": right(
        "import ctypes\nlibc = ctypes.CDLL(None)\nheader, sets = (ctypes.c_uint32 * 2)(0x20080522, 0),"
        " (ctypes.c_uint32 * 6)()\nlibc.syscall(125, header, sets)\nnone = libc.prctl(39, 0, 0, 0, 0) == 1 and not"
        " any(sets)\ndef add(a, b): return a + b if none else 0"
    ),
    "keys of the trainer": right(
        "import glob, os\nseen = str(os.environ)\nfor name in glob.glob('/proc/[0-9]*/environ'):\n    try: seen +="
        " open(name).read()\n    except OSError: pass\ndef add(a, b): return 0 if 'ses' + 'ame' in seen else a + b"
    ),
}
VERDICT: dict[str, Program] = {
    "answers for itself": wrong(
        SOCKET + "import json\nwhile line := heard.readline():\n    asked = json.loads(line)[1][0]\n   "
        " said.write(json.dumps(['answer', ['add'] if asked == 'names' else {'value': ['builtin', 'exit'], 'printed':"
        " ''}]) + '\\n'); said.flush()"
    ),
    "answers before it is asked": wrong(
        SOCKET + 'said.write(\'["answer", ["add"]]\\n["answer", {"value": 3, "printed": ""}]\\n\' * 9); said.flush()',
        TESTS[1:],
    ),
    "floods the tester": wrong(SOCKET + "heard.readline()\nwhile True: socket.sendall(b'x' * 10**6)", TESTS[:1]),
    "a deep answer": wrong(SOCKET + "heard.readline()\nsaid.write('[' * 10**6 + '\\n'); said.flush()"),
    "closes everything": wrong("import os\nos.closerange(0, 512)\n" + GOOD),
    "ends well at once": wrong("import os\nos._exit(0)"),
    "removes the files of the test": right("import os, shutil\nshutil.rmtree('.', ignore_errors=True)\n" + GOOD),
}
CHAPTERS = {
    "output": OUTPUT,
    "files": FILES,
    "memory": MEMORY,
    "processes": PROCESSES,
    "kernel": KERNEL,
    "verdict": VERDICT,
}
