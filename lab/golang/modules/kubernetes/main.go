// Hyper is Kubernetes' control plane, its node agent, its client and etcd in one program.
//
// The name under which it is started decides what it is, as busybox does; started as "hyper", its first argument does.
// One program costs the processor time of five and a third of their size, because they share most of their packages.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // the metrics that the separate programs have
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

const etcd = "etcd" // has a command line of its own, every other role is a cobra command

// Commands are made only when asked for: making one registers its flags and feature gates for the whole process.
var commands = map[string]func() *cobra.Command{
	"kube-apiserver":          apiserver.NewAPIServerCommand,
	"kube-controller-manager": controllers.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return scheduler.NewSchedulerCommand() },
	"kubectl":                 kubectl.NewDefaultKubectlCommand,
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
}

func main() {
	// The commands read os.Args themselves: what they find there must begin with their own name.
	if filepath.Base(os.Args[0]) == "hyper" && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	role := filepath.Base(os.Args[0])
	if role == etcd {
		etcdmain.Main(os.Args)
		return
	}
	command, known := commands[role]
	if !known {
		fmt.Fprintln(os.Stderr, "usage: hyper etcd|kube-apiserver|kube-controller-manager|kube-scheduler|kubectl|kubelet ...")
		os.Exit(2)
	}
	os.Exit(cli.Run(command()))
}
