// Mirror is a controller as users write them: for every ConfigMap labelled mirror=true it keeps a
// Secret of the same name, owned by the ConfigMap, and says so in an Event. It holds ConfigMaps with
// a finalizer, watches the metadata of HTTPRoutes, and applies an annotation to them.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/client-go/tools/record"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

const finalizer = "mirror.example.com/hold"

type mirror struct {
	client.Client
	events record.EventRecorder
}

func (m *mirror) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var source corev1.ConfigMap
	if err := m.Get(ctx, request.NamespacedName, &source); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !source.DeletionTimestamp.IsZero() {
		if controllerutil.RemoveFinalizer(&source, finalizer) {
			return ctrl.Result{}, m.Update(ctx, &source)
		}
		return ctrl.Result{}, nil
	}
	if controllerutil.AddFinalizer(&source, finalizer) {
		if err := m.Update(ctx, &source); err != nil {
			return ctrl.Result{}, err
		}
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: source.Namespace, Name: source.Name}}
	outcome, err := controllerutil.CreateOrUpdate(ctx, m.Client, secret, func() error {
		secret.Data = map[string][]byte{}
		for key, value := range source.Data {
			secret.Data[key] = []byte(value)
		}
		return controllerutil.SetControllerReference(&source, secret, m.Scheme())
	})
	if err != nil {
		return ctrl.Result{}, err
	}
	if outcome != controllerutil.OperationResultNone {
		m.events.Event(&source, corev1.EventTypeNormal, "Mirrored", fmt.Sprintf("secret %s", outcome))
	}
	return ctrl.Result{}, nil
}

type routes struct{ client.Client }

var route = schema.GroupVersionKind{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}

func (r *routes) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	found := &metav1.PartialObjectMetadata{}
	found.SetGroupVersionKind(route)
	if err := r.Get(ctx, request.NamespacedName, found); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	applied := &unstructured.Unstructured{}
	applied.SetGroupVersionKind(route)
	applied.SetNamespace(request.Namespace)
	applied.SetName(request.Name)
	applied.SetAnnotations(map[string]string{"example.com/seen": "true"})
	err := r.Patch(ctx, applied, client.Apply, client.FieldOwner("mirror"), client.ForceOwnership)
	if apierrors.IsConflict(err) {
		return ctrl.Result{Requeue: true}, nil
	}
	return ctrl.Result{}, err
}

func run() error {
	identity := flag.String("id", "", "name in the log")
	flag.Parse()
	ctrl.SetLogger(zap.New())
	// A busy machine may take some seconds to start the server again.
	lease, renew, retry := 12*time.Second, 10*time.Second, 500*time.Millisecond
	manager, err := ctrl.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{
		LeaderElection:                true,
		LeaderElectionID:              "mirror",
		LeaderElectionNamespace:       "default",
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &lease,
		RenewDeadline:                 &renew,
		RetryPeriod:                   &retry,
		Metrics:                       metricsserver.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	labelled, err := predicate.LabelSelectorPredicate(
		metav1.LabelSelector{MatchLabels: map[string]string{"mirror": "true"}})
	if err != nil {
		return err
	}
	m := &mirror{manager.GetClient(), manager.GetEventRecorderFor("mirror")}
	err = ctrl.NewControllerManagedBy(manager).
		For(&corev1.ConfigMap{}, builder.WithPredicates(labelled)).
		Owns(&corev1.Secret{}).
		Complete(m)
	if err != nil {
		return err
	}
	watched := &metav1.PartialObjectMetadata{}
	watched.SetGroupVersionKind(route)
	err = ctrl.NewControllerManagedBy(manager).
		Named("routes").
		For(watched, builder.OnlyMetadata).
		Complete(&routes{manager.GetClient()})
	if err != nil {
		return err
	}
	go func() {
		<-manager.Elected()
		fmt.Printf("leading %s\n", *identity)
	}()
	log.Log.Info("starting", "id", *identity)
	return manager.Start(ctrl.SetupSignalHandler())
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
