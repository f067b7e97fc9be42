"""A wall around an untrusted program: bubblewrap, or Landlock and a filter of system calls on machines that refuse
namespaces.

`machine_wall` finds the wall that this machine allows and puts commands inside it. `second_wall` runs in a process of
its own, which a Python starts that need not know this package and that imports only the standard library.
"""
