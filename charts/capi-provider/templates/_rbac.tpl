{{- /* Rules that a namespace needs in which the provider keeps something. */ -}}
{{- define "capi-provider.ownRules" -}}
- apiGroups: [""]
  resources: [secrets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [get, list, watch, create, update, patch, delete]
# The connection of Cluster API core: a token of this account and of no other.
- apiGroups: [""]
  resources: [serviceaccounts]
  verbs: [get, create]
- apiGroups: [""]
  resources: [serviceaccounts/token]
  resourceNames: [capi-remote]
  verbs: [create]
{{- end -}}

{{- /* A RoleBinding or ClusterRoleBinding to the provider: dict "root" $ "kind" "Role" "name" … "namespace" …. */ -}}
{{- define "capi-provider.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "capi-provider.programLabels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "capi-provider.serviceAccount" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}
