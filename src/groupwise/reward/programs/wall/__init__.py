"""A wall around an untrusted program: namespaces, or Landlock and a filter of system calls on machines that refuse
namespaces.

`machine_wall` finds the wall that this machine allows and returns commands that run behind it. All other modules run
in processes of their own, which a Python starts that need not know this package and that imports only the standard
library. Code of the package that must keep a process behind the wall replaces its command by
`machine_wall.behind(command, limits)`.
"""
