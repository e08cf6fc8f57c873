{{- define "gatehouse.name" -}}
{{- /* A CronJob's name has 52 characters at most, of which -certificates is part; a Service's begins
with a letter. */ -}}
{{- $name := default .Release.Name .Values.nameOverride -}}
{{- $plain := replace "." "-" $name -}}
{{- if not (regexMatch "^[a-z]" $plain) }}{{ $plain = printf "gatehouse-%s" $plain }}{{ end -}}
{{- if gt (len $plain) 39 -}}
{{- printf "%s-%s" ($plain | trunc 30 | trimSuffix "-") (sha256sum $name | trunc 8) -}}
{{- else -}}
{{- $plain -}}
{{- end -}}
{{- end -}}

{{- define "gatehouse.selector" -}}
app.kubernetes.io/name: gatehouse
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{/* The Pod whose controller leads: it puts the label on its own Pod. */}}
{{- define "gatehouse.leaderSelector" -}}
{{ include "gatehouse.selector" . }}
gatehouse.dev/leader: "true"
{{- end -}}

{{- define "gatehouse.counterSelector" -}}
app.kubernetes.io/name: gatehouse-counter
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "gatehouse.dataPlanePeers" -}}
- namespaceSelector: {}
  podSelector:
    matchLabels: {app.kubernetes.io/managed-by: gatehouse}
{{- end -}}

{{- define "gatehouse.labels" -}}
{{ include "gatehouse.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "gatehouse.image" -}}
{{- $image := index . 1 -}}
{{ $image.repository }}:{{ default (index . 0).Chart.AppVersion $image.tag }}{{ with $image.digest }}@{{ . }}{{ end }}
{{- end -}}

{{/* Where data planes find the counter of limits that they share; empty: there is none. */}}
{{- define "gatehouse.limitCounter" -}}
{{- if .Values.counter.enabled -}}
{{ include "gatehouse.name" . }}-counter.{{ .Release.Namespace }}.svc:8081
{{- else -}}
{{ .Values.counter.address }}
{{- end -}}
{{- end -}}

{{/* Not empty if data planes get a licence of NGINX Plus. */}}
{{- define "gatehouse.licensed" -}}
{{- range .Values.dataPlanes.copiedSecrets }}{{ if eq .use "license" }}yes{{ end }}{{ end -}}
{{- end -}}

{{- define "gatehouse.secret" -}}
{{- default (printf "%s-channel" (include "gatehouse.name" .)) .Values.certificates.secretName -}}
{{- end -}}

{{/* The name in the certificate, which agents expect; it is the same in every installation. */}}
{{- define "gatehouse.serverName" -}}
gatehouse-controller.gatehouse-system.svc
{{- end -}}

{{- define "gatehouse.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "gatehouse.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities: {drop: [ALL]}
seccompProfile: {type: RuntimeDefault}
{{- end -}}
