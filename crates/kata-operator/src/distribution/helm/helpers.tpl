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

{{- /* The operator's image. */ -}}
{{- define "kata-operator.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default (printf "v%s" .Chart.AppVersion) .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Whether the kinds of the Prometheus operator are wanted; empty if not. */ -}}
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
