{{- /* The kind of cluster: openshift if it serves the Machine Config Operator's API. */ -}}
{{- define "kata-operator.platform" -}}
{{- if ne .Values.platform "auto" -}}
{{- .Values.platform -}}
{{- else if .Capabilities.APIVersions.Has "machineconfiguration.openshift.io/v1" -}}
openshift
{{- else -}}
kubernetes
{{- end -}}
{{- end -}}

{{- /* "yes" on OpenShift, else empty. */ -}}
{{- define "kata-operator.openshift" -}}
{{- if eq (include "kata-operator.platform" .) "openshift" -}}
yes
{{- end -}}
{{- end -}}

{{- /* "yes" if the operator runs kata-monitor, else empty. */ -}}
{{- define "kata-operator.kataMonitor" -}}
{{- if and .Values.monitor.image (include "kata-operator.openshift" .) -}}
yes
{{- end -}}
{{- end -}}

{{- /* "yes" if the release has a ServiceMonitor and a PrometheusRule, else empty. */ -}}
{{- define "kata-operator.monitoring" -}}
{{- if eq (toString .Values.monitoring.enabled) "true" -}}
{{- if and (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) .Release.IsInstall -}}
{{- if .Capabilities.APIVersions.Has "v1/Node" -}}
{{- fail "monitoring.enabled is true, but the cluster does not serve monitoring.coreos.com/v1: install the Prometheus operator first, or set monitoring.enabled=auto" -}}
{{- end -}}
{{- end -}}
yes
{{- else if and (eq (toString .Values.monitoring.enabled) "auto") (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1") -}}
yes
{{- end -}}
{{- end -}}

{{- /* The operator's image; $published is the digest of the one that was published with the chart. */ -}}
{{- define "kata-operator.image" -}}
{{- if not .Values.image.repository -}}
{{- fail "image.repository is not set, and no image was published with this chart: add --set image.repository=REGISTRY/PATH and --set image.tag=TAG; `cargo xtask image --push REGISTRY/PATH:TAG` builds it and pushes it" -}}
{{- end -}}
{{- $published := "" -}}
{{- $digest := .Values.image.digest -}}
{{- if not .Values.image.tag -}}
{{- $digest = default $published $digest -}}
{{- end -}}
{{- if $digest -}}
{{- printf "%s@%s" .Values.image.repository $digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (printf "v%s" .Chart.AppVersion) .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Labels of every object, besides its component. */ -}}
{{- define "kata-operator.labels" -}}
app.kubernetes.io/name: kata-operator
app.kubernetes.io/part-of: kata-operator
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{ include "kata-operator.releaseLabels" . }}
{{- end -}}

{{- /* Labels that only Helm sets. */ -}}
{{- define "kata-operator.releaseLabels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /* What selects the operator's pods and no others. */ -}}
{{- define "kata-operator.selector" -}}
app.kubernetes.io/name: kata-operator
app.kubernetes.io/component: operator
{{- end -}}
