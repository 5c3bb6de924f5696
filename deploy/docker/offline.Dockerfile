# What the pulled images are replaced by where no container registry can be reached: one Debian tree with the
# packages that the stack needs, and Go on top of it. tests/composekit.py sends the tree and the context.
ARG TREE=vigia-offline/tree:local

FROM ${TREE} AS debian
# What this machine trusts beside Debian's authorities: package indexes may be behind a proxy of its own.
COPY certificates /usr/local/share/ca-certificates
RUN update-ca-certificates >/dev/null
ENV SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt

FROM debian AS go
COPY go /usr/local/go
ENV PATH=/usr/local/go/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin GOTOOLCHAIN=local
