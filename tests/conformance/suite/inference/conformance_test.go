// The suite of the inference extension: tests and setup are unmodified. See ../../run.py.
package conformance_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	definitions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/gateway-api-inference-extension/conformance"
	"sigs.k8s.io/gateway-api-inference-extension/conformance/tests"
	"sigs.k8s.io/gateway-api-inference-extension/version"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
)

// TestConformance differs from RunConformance in one thing: the suite of Gateway API 1.7 reports
// only after it has ended.
func TestConformance(t *testing.T) {
	ctx, options := context.Background(), conformance.DefaultOptions(t)
	suite.RegisterConformanceProfile(conformance.GatewayLayerProfile)
	run, err := suite.NewConformanceTestSuite(options)
	require.NoError(t, err)

	var pools definitions.CustomResourceDefinition
	name := types.NamespacedName{Name: "inferencepools.inference.networking.k8s.io"}
	require.NoError(t, options.Client.Get(ctx, name, &pools))

	t.Cleanup(func() {
		report, err := run.Report()
		require.NoError(t, err)
		full := conformance.GatewayAPIInferenceExtensionConformanceReport{
			GatewayAPIInferenceExtensionVersion: pools.Annotations[version.BundleVersionAnnotation],
			ConformanceReport:                   *report,
		}
		require.NoError(t, full.WriteReport(t.Logf, options.ReportOutputPath))
	})
	conformance.SetupConformanceTestSuite(ctx, t, run, options, tests.ConformanceTests)
	require.NoError(t, run.Run(t, tests.ConformanceTests))
}
