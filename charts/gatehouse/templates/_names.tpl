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

{{/* Selects the Pod of the leader, which labels its own Pod. */}}
{{- define "gatehouse.leaderSelector" -}}
{{ include "gatehouse.selector" . }}
gatehouse.dev/leader: "true"
{{- end -}}

{{- define "gatehouse.rateLimitSelector" -}}
app.kubernetes.io/name: gatehouse-ratelimit
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

{{/* Address of the rate limit service as data planes reach it, or empty. */}}
{{- define "gatehouse.rateLimitService" -}}
{{- if .Values.rateLimit.enabled -}}
{{ include "gatehouse.name" . }}-ratelimit.{{ .Release.Namespace }}.svc:8081
{{- else -}}
{{ .Values.rateLimit.address }}
{{- end -}}
{{- end -}}

{{/* Not empty if data planes get a license of NGINX Plus. */}}
{{- define "gatehouse.licensed" -}}
{{- range .Values.dataPlanes.copiedSecrets }}{{ if eq .use "license" }}yes{{ end }}{{ end -}}
{{- end -}}

{{/* Default network policy of data planes. The controller calls the key of Gateways' parameters `enable`. */}}
{{- define "gatehouse.dataPlaneNetworkPolicy" -}}
{{- $policy := .Values.dataPlanes.networkPolicy -}}
{{- toJson (merge (dict "enable" $policy.enabled) (omit $policy "enabled")) -}}
{{- end -}}

{{- define "gatehouse.secret" -}}
{{- default (printf "%s-channel" (include "gatehouse.name" .)) .Values.certificates.secretName -}}
{{- end -}}

{{/* Name in the server certificate, the same in every installation. */}}
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
