{{- /* Annotations of every CRD; empty when there are none. */ -}}
{{- define "russet-crds.annotations" -}}
{{- $annotations := dict -}}
{{- if .Values.keep -}}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" -}}
{{- end -}}
{{- with mergeOverwrite $annotations (.Values.annotations | default dict) -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{- /* Labels of every CRD besides those that Cluster API reads. */ -}}
{{- define "russet-crds.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/part-of" "russet" "app.kubernetes.io/version" .Chart.AppVersion "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- mergeOverwrite $labels (.Values.labels | default dict) | toYaml -}}
{{- end -}}
