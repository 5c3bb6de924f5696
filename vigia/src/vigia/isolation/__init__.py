"""The isolation experiments: a testbed of nodes with enforcers, its traffic, its benchmark."""
