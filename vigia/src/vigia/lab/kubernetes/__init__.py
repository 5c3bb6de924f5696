"""A cluster of Kubernetes in the lab's namespaces: its own programs, its own control plane, real nodes."""
