"""The lab cloud: namespaces as compute nodes and virtual machines, real switches between them."""
