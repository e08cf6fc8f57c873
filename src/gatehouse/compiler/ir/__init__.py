"""The intermediate representation: what a proxy must do, in the field's words.

Frozen data without I/O. Every back end must be able to express all of it; what one cannot, it
reports. Nothing here knows Kubernetes or any proxy. A new ability of the product starts here:
:mod:`gatehouse.compiler.ir.http` for HTTP semantics, :mod:`gatehouse.compiler.ir.gateway` for
listeners and TLS.

Every struct is compared by value and shared by identity: an unchanged virtual host is the same
object in the next compile, which is how the back ends know what need not be rendered again.
"""
