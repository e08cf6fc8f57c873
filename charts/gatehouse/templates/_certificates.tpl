{{/* The spec of a Job that makes the channel's certificates, and renews what expires soon. */}}
{{- define "gatehouse.certificatesJob" -}}
{{- $ := index . 0 -}}
{{- $name := include "gatehouse.name" $ -}}
backoffLimit: 10
ttlSecondsAfterFinished: 86400
template:
  metadata:
    labels:
      app.kubernetes.io/name: gatehouse-certificates
      app.kubernetes.io/instance: {{ $.Release.Name | quote }}
  spec:
    serviceAccountName: {{ $name }}-certificates
    automountServiceAccountToken: true
    restartPolicy: OnFailure
    {{- with $.Values.imagePullSecrets }}
    imagePullSecrets:
      {{- range . }}
      - name: {{ . | quote }}
      {{- end }}
    {{- end }}
    securityContext: {{- include "gatehouse.podSecurity" $ | nindent 6 }}
    containers:
      - name: certificates
        image: {{ include "gatehouse.image" (list $ $.Values.image) }}
        imagePullPolicy: {{ $.Values.image.pullPolicy }}
        args:
          - certs
          - --secret={{ $.Release.Namespace }}/{{ include "gatehouse.secret" $ }}
          {{- range index . 1 }}
          - --name={{ . }}
          {{- end }}
        resources:
          requests: {cpu: 10m, memory: 64Mi}
          limits: {memory: 256Mi}
        securityContext: {{- include "gatehouse.containerSecurity" $ | nindent 10 }}
        volumeMounts:
          - {name: tmp, mountPath: /tmp}
    volumes:
      - name: tmp
        emptyDir: {medium: Memory}
{{- end -}}
