"""A wall around an untrusted program: namespaces, or Landlock and a filter of system calls on machines that refuse
namespaces.

`offered` says what this machine allows and gives commands that run behind it; everything else here runs in processes of
its own, started by a Python that need not know this package and in which nothing but the standard library is imported.
Another part of the package that must keep a process behind the wall puts `offered.behind(command, limits)` in the place
of its command.
"""
