package app

import (
	"context"
	"io"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"

	"vigia/internal/daemon"
	"vigia/isolation-agent/enforcer/configmap"
)

// followConfigMap runs beside the enforcer in its pod, as another user: it has a token of the API server's and no right on the
// node, the enforcer the other way round.
func followConfigMap() daemon.Command {
	return daemon.Command{
		Name: "follow-config-map", Help: "Keep a key of a ConfigMap in a file, such as contracts_file, until it is stopped; in a pod, beside the enforcer.",
		Register: func(cmd *kingpin.CmdClause) func(context.Context, io.Writer, io.Writer) error {
			c := configmap.Config{APIServer: configmap.InCluster()}
			cmd.Flag("namespace", "Of the ConfigMap.").Required().StringVar(&c.Namespace)
			cmd.Flag("config-map", "Its name. The service account has to have the right to get, list and watch it.").Required().StringVar(&c.Name)
			cmd.Flag("key", "What of it is kept.").Default("contracts.yaml").StringVar(&c.Key)
			cmd.Flag("brought", "The same key as a file of a volume, which is used while the API server does not answer.").Required().StringVar(&c.Brought)
			cmd.Flag("file", "What is written.").Required().StringVar(&c.File)
			cmd.Flag("api-server", "Its URL; by default the cluster's that this is a pod of.").StringVar(&c.APIServer.URL)
			cmd.Flag("token-file", "Token of the service account.").StringVar(&c.APIServer.TokenFile)
			cmd.Flag("ca-file", "Authority of the API server's certificate.").StringVar(&c.APIServer.CAFile)
			once := cmd.Flag("once", "Write what the kubelet has brought, if there is no file yet, and exit.").Bool()
			return func(ctx context.Context, _, stderr io.Writer) error {
				f, err := configmap.New(c, promslog.New(&promslog.Config{Writer: stderr}))
				if err != nil {
					return err
				}
				if *once {
					return f.Seed()
				}
				return f.Run(ctx)
			}
		},
	}
}
