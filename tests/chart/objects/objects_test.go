// Package objects decodes what the chart renders with the types of Kubernetes and of prometheus-operator, strictly, and
// holds it against the Pod Security levels as the API server does.
package objects

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	disruption "k8s.io/api/policy/v1"
	rbac "k8s.io/api/rbac/v1"
	scheduling "k8s.io/api/scheduling/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
)

// schemaless are kinds whose types no module has: their keys are checked where they are rendered.
var schemaless = []string{"GrafanaDashboard"}

// rendered is an object and the file and number that it was read from.
type rendered struct {
	object runtime.Object
	kind   schema.GroupVersionKind
	meta   meta.Object
	where  string
}

func decoder(t *testing.T) runtime.Decoder {
	t.Helper()
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		core.AddToScheme, apps.AddToScheme, rbac.AddToScheme, networking.AddToScheme, disruption.AddToScheme, scheduling.AddToScheme, admission.AddToScheme, monitoring.AddToScheme,
	} {
		if err := add(known); err != nil {
			t.Fatal(err)
		}
	}
	return serializer.NewCodecFactory(known, serializer.EnableStrict).UniversalDeserializer()
}

func read(t *testing.T, path string) []rendered {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	decode := decoder(t)
	documents := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(raw)))
	var out []rendered
	for i := 0; ; i++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(bytes.TrimSpace(withoutComments(document))) == 0 || isSchemaless(document) {
			continue
		}
		object, kind, err := decode.Decode(document, nil, nil)
		if err != nil {
			t.Errorf("%s, document %d: %v\n%.200s", path, i, err, document)
			continue
		}
		out = append(out, rendered{object, *kind, object.(meta.Object), fmt.Sprintf("%s: %s %s", filepath.Base(path), kind.Kind, object.(meta.Object).GetName())})
	}
}

func withoutComments(document []byte) []byte {
	var out []byte
	for line := range bytes.Lines(document) {
		if !bytes.HasPrefix(line, []byte("#")) {
			out = append(out, line...)
		}
	}
	return out
}

func isSchemaless(document []byte) bool {
	return slices.ContainsFunc(schemaless, func(kind string) bool { return bytes.Contains(document, []byte("\nkind: "+kind+"\n")) })
}

// everything returns the objects by golden file; VIGIA_RENDERED names their folder.
func everything(t *testing.T) map[string][]rendered {
	t.Helper()
	folder := os.Getenv("VIGIA_RENDERED")
	if folder == "" {
		t.Fatal("VIGIA_RENDERED is not set: it names the folder of what the chart renders")
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil || len(paths) < 8 {
		t.Fatalf("%d files in %s, at least 8 were expected: %v", len(paths), folder, err)
	}
	out := make(map[string][]rendered)
	for _, path := range paths {
		out[strings.TrimSuffix(filepath.Base(path), ".yaml")] = read(t, path)
	}
	return out
}

func TestObjectsAreWhatTheApiServerKnows(t *testing.T) {
	for name, objects := range everything(t) {
		seen := map[string]bool{}
		for _, o := range objects {
			for _, problem := range validation.IsDNS1123Subdomain(o.meta.GetName()) {
				t.Errorf("%s: name: %s", o.where, problem)
			}
			for key, value := range o.meta.GetLabels() {
				for _, problem := range append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...) {
					t.Errorf("%s: label %s=%s: %s", o.where, key, value, problem)
				}
			}
			if id := fmt.Sprint(o.kind, o.meta.GetNamespace(), o.meta.GetName()); seen[id] {
				t.Errorf("%s: %s is there twice", name, o.where)
			} else {
				seen[id] = true
			}
		}
	}
}

// pods returns the pod templates with the labels of their selectors.
func pods(objects []rendered) map[string]podOf {
	out := make(map[string]podOf)
	for _, o := range objects {
		component := o.meta.GetLabels()["app.kubernetes.io/component"]
		switch w := o.object.(type) {
		case *apps.DaemonSet:
			out[component] = podOf{w.Spec.Template.ObjectMeta, w.Spec.Template.Spec, w.Spec.Selector, o.where}
		case *apps.Deployment:
			out[component] = podOf{w.Spec.Template.ObjectMeta, w.Spec.Template.Spec, w.Spec.Selector, o.where}
		case *apps.StatefulSet:
			out[component] = podOf{w.Spec.Template.ObjectMeta, w.Spec.Template.Spec, w.Spec.Selector, o.where}
		case *core.Pod:
			out[w.Name] = podOf{w.ObjectMeta, w.Spec, nil, o.where}
		}
	}
	return out
}

type podOf struct {
	meta     meta.ObjectMeta
	spec     core.PodSpec
	selector *meta.LabelSelector
	where    string
}

// exceptions are the checks of the level restricted that a component's pods do not pass, and why.
var exceptions = map[string]map[string]string{
	"probe": {
		"hostNetwork": "the node's own network is what is measured",
		"hostPorts":   "what listens in the host's network has its ports",
	},
	"exporter": {
		"hostNetwork":               "tenants' ports are devices of the node",
		"hostPorts":                 "what listens in the host's network has its ports",
		"hostPathVolumes":           "BPF file system, sockets of kubelet and Open vSwitch",
		"restrictedVolumes":         "the same",
		"capabilities_baseline":     "BPF, NET_ADMIN, PERFMON: programs and devices",
		"capabilities_restricted":   "the same",
		"runAsNonRoot":              "pins and sockets are root's",
		"runAsUser":                 "the same",
		"hostNamespaces":            "host network",
		"seccompProfile_restricted": "only where ports.seccompProfile says so",
		"seccompProfile_baseline":   "only where ports.seccompProfile says so",
	},
}

func TestPodsPassTheLevelRestrictedButForWhatIsListed(t *testing.T) {
	exceptions["probe"]["hostNamespaces"] = "host network"
	exceptions["enforcer"] = exceptions["exporter"]
	withCapabilities := maps.Clone(exceptions["probe"])
	for _, check := range []string{"capabilities_baseline", "capabilities_restricted", "allowPrivilegeEscalation"} {
		withCapabilities[check] = "probe.capabilities.enabled"
	}
	checks := policy.DefaultChecks()
	for name, objects := range everything(t) {
		for component, pod := range pods(objects) {
			allowed := exceptions[component]
			if name == "probe-capabilities" && strings.HasPrefix(component, "probe") {
				allowed = withCapabilities
			}
			for _, check := range checks {
				version := check.Versions[len(check.Versions)-1]
				result := version.CheckPod(&pod.meta, &pod.spec)
				if _, listed := allowed[string(check.ID)]; !result.Allowed && !listed {
					t.Errorf("%s: %s, of level %s: %s: %s", pod.where, check.ID, check.Level, result.ForbiddenReason, result.ForbiddenDetail)
				}
			}
			for _, c := range slices.Concat(pod.spec.InitContainers, pod.spec.Containers) {
				if c.SecurityContext.Privileged != nil && *c.SecurityContext.Privileged {
					t.Errorf("%s: container %s is privileged", pod.where, c.Name)
				}
				if !*c.SecurityContext.ReadOnlyRootFilesystem {
					t.Errorf("%s: container %s may write its files", pod.where, c.Name)
				}
				if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
					t.Errorf("%s: container %s has no bounds", pod.where, c.Name)
				}
			}
		}
	}
	if checks[0].Level != api.LevelBaseline && checks[0].Level != api.LevelRestricted {
		t.Errorf("the first check has level %q", checks[0].Level)
	}
}

// A budget counts pods by their controller's scale, which a DaemonSet has not.
func TestNoBudgetIsForADaemonSet(t *testing.T) {
	for _, objects := range everything(t) {
		templates := pods(objects)
		for _, o := range objects {
			budget, ok := o.object.(*disruption.PodDisruptionBudget)
			for _, pod := range templates {
				if ok && matches(budget.Spec.Selector, pod.meta.Labels) && strings.Contains(pod.where, "DaemonSet") {
					t.Errorf("%s is for %s", o.where, pod.where)
				}
			}
		}
	}
}

// Services, budgets, policies and monitors select pods that there are.
func TestSelectorsMatchPods(t *testing.T) {
	for _, objects := range everything(t) {
		templates := pods(objects)
		for _, pod := range templates {
			if pod.selector != nil && !matches(pod.selector, pod.meta.Labels) {
				t.Errorf("%s: its selector does not match its pods", pod.where)
			}
		}
		for _, o := range objects {
			if s, ok := o.object.(*core.Service); ok && s.Namespace != "vigia" {
				continue // of others' pods: those of the cluster's DNS
			}
			for _, selector := range selectors(o.object) {
				found := false
				for _, pod := range templates {
					found = found || matches(selector, pod.meta.Labels)
				}
				if !found {
					t.Errorf("%s: %v selects no pod", o.where, selector)
				}
			}
		}
	}
}

func matches(s *meta.LabelSelector, labels map[string]string) bool {
	selector, err := meta.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set(labels))
}

type set map[string]string

func (s set) Has(label string) bool              { _, ok := s[label]; return ok }
func (s set) Get(label string) string            { return s[label] }
func (s set) Lookup(label string) (string, bool) { v, ok := s[label]; return v, ok }

func selectors(object runtime.Object) []*meta.LabelSelector {
	switch o := object.(type) {
	case *core.Service:
		return []*meta.LabelSelector{{MatchLabels: o.Spec.Selector}}
	case *disruption.PodDisruptionBudget:
		return []*meta.LabelSelector{o.Spec.Selector}
	case *networking.NetworkPolicy:
		return []*meta.LabelSelector{&o.Spec.PodSelector}
	case *monitoring.PodMonitor:
		return []*meta.LabelSelector{&o.Spec.Selector}
	}
	return nil
}

// What pods mount and name is there.
func TestReferencesAreResolved(t *testing.T) {
	for name, objects := range everything(t) {
		there := map[string]map[string][]string{"ConfigMap": {}, "Secret": {}, "ServiceAccount": {}, "PersistentVolumeClaim": {}, "PriorityClass": {}}
		there["ConfigMap"]["kube-root-ca.crt"] = []string{"ca.crt"} // the control plane puts it into every namespace
		for _, o := range objects {
			if known := there[o.kind.Kind]; known != nil {
				known[o.meta.GetName()] = keys(o.object)
			}
		}
		need := func(where, kind, object string, items []core.KeyToPath) {
			found, ok := there[kind][object]
			if !ok && !strings.HasPrefix(object, "given-") {
				t.Errorf("%s: %s: there is no %s %s", name, where, kind, object)
			}
			for _, item := range items {
				if ok && !slices.Contains(found, item.Key) {
					t.Errorf("%s: %s: %s %s has no key %s", name, where, kind, object, item.Key)
				}
			}
		}
		for _, pod := range pods(objects) {
			if pod.spec.ServiceAccountName != "" {
				need(pod.where, "ServiceAccount", pod.spec.ServiceAccountName, nil)
			}
			if class := pod.spec.PriorityClassName; class != "" && !strings.HasPrefix(class, "system-") {
				need(pod.where, "PriorityClass", pod.spec.PriorityClassName, nil)
			}
			mounted := map[string]bool{}
			for _, v := range pod.spec.Volumes {
				mounted[v.Name] = true
				volume(pod.where, v, need)
			}
			for _, c := range slices.Concat(pod.spec.InitContainers, pod.spec.Containers) {
				for _, m := range c.VolumeMounts {
					if !mounted[m.Name] && (m.Name != "data" || name == "") && !strings.Contains(pod.where, "StatefulSet") {
						t.Errorf("%s: %s: no volume %s", name, pod.where, m.Name)
					}
				}
			}
		}
	}
}

func volume(where string, v core.Volume, need func(where, kind, object string, items []core.KeyToPath)) {
	switch {
	case v.ConfigMap != nil:
		need(where, "ConfigMap", v.ConfigMap.Name, v.ConfigMap.Items)
	case v.Secret != nil:
		need(where, "Secret", v.Secret.SecretName, v.Secret.Items)
	case v.PersistentVolumeClaim != nil:
		need(where, "PersistentVolumeClaim", v.PersistentVolumeClaim.ClaimName, nil)
	case v.Projected != nil:
		for _, s := range v.Projected.Sources {
			if s.ConfigMap != nil {
				need(where, "ConfigMap", s.ConfigMap.Name, s.ConfigMap.Items)
			}
			if s.Secret != nil {
				need(where, "Secret", s.Secret.Name, s.Secret.Items)
			}
		}
	}
}

func keys(object runtime.Object) []string {
	switch o := object.(type) {
	case *core.ConfigMap:
		return slices.Collect(maps.Keys(o.Data))
	case *core.Secret:
		return append(slices.Collect(maps.Keys(o.Data)), slices.Collect(maps.Keys(o.StringData))...)
	}
	return nil
}

// ownRights are what vigia-identity may change beside objects that it is given by name, by group and resource: the chart's own
// kinds, of which one object is made for each limit, and Events, which say so at the pod. Neither changes what a cluster does.
var ownRights = map[string][]string{
	"vigia.internal/networkguarantees/status": {"patch"},
	"vigia.internal/isolationactions":         {"create", "patch", "delete"},
	"/events":                                 {"create"},
}

// Rights are to list, get, watch and patch alone, and only where they are named to change anything that is not ours.
func TestRightsAreTheLeast(t *testing.T) {
	for name, objects := range everything(t) {
		for _, o := range objects {
			var rules []rbac.PolicyRule
			switch r := o.object.(type) {
			case *rbac.ClusterRole:
				rules = r.Rules
			case *rbac.Role:
				rules = r.Rules
			}
			for _, rule := range rules {
				for _, verb := range rule.Verbs {
					reads := slices.Contains([]string{"get", "list", "watch"}, verb)
					if !reads && (verb != "patch" || len(rule.ResourceNames) == 0) && !ours(o.meta, rule, verb) {
						t.Errorf("%s: %s: may %s %v", name, o.where, verb, rule.Resources)
					}
				}
				if slices.Contains(rule.Resources, "secrets") || slices.Contains(append(rule.Resources, rule.APIGroups...), "*") {
					t.Errorf("%s: %s: may see %v", name, o.where, rule.Resources)
				}
			}
		}
	}
}

// ours says whether a verb is among the own rights, whatever the rule names.
func ours(role meta.Object, rule rbac.PolicyRule, verb string) bool {
	component := role.GetLabels()["app.kubernetes.io/component"]
	if component == "approvals" { // of people; see TestWhoMayApproveIsForTheClustersAdministratorsToSay
		return verb == "patch" && role.GetNamespace() != "" && slices.Equal(rule.Resources, []string{"isolationactions"})
	}
	if component != "identity" || len(rule.APIGroups) == 0 || len(rule.Resources) == 0 {
		return false
	}
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			if !slices.Contains(ownRights[group+"/"+resource], verb) {
				return false
			}
		}
	}
	return true
}

// Nobody of the chart's is bound to the role of those who approve, and the API server vouches for who they are wherever there is one.
func TestWhoMayApproveIsForTheClustersAdministratorsToSay(t *testing.T) {
	for name, objects := range everything(t) {
		count := map[string]int{}
		for _, o := range objects {
			switch r := o.object.(type) {
			case *rbac.Role:
				if r.Name == "vigia-approvals" {
					count["role"]++
				}
			case *rbac.RoleBinding:
				if r.RoleRef.Name == "vigia-approvals" {
					t.Errorf("%s: %s binds %v", name, o.where, r.Subjects)
				}
			case *admission.ValidatingAdmissionPolicy:
				count["policy "+r.Name]++
				if *r.Spec.FailurePolicy != admission.Fail || len(r.Spec.Validations) < 4 {
					t.Errorf("%s: %s lets through what it cannot judge", name, o.where)
				}
			case *admission.ValidatingAdmissionPolicyBinding:
				count["policy "+r.Spec.PolicyName]++
				if !slices.Equal(r.Spec.ValidationActions, []admission.ValidationAction{admission.Deny}) {
					t.Errorf("%s: %s denies nothing", name, o.where)
				}
			}
		}
		policies := count["policy vigia-vigia-approvals"]
		wanted := map[string]int{"default": 1, "probes-alone": 0}
		if n, ok := wanted[name]; policies != 2*count["role"] || ok && count["role"] != n {
			t.Errorf("%s: %v", name, count)
		}
	}
}
