{{- define "capi-provider.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* What never changes over the life of a release: Deployments cannot change their selectors. */ -}}
{{- define "capi-provider.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "capi-provider.labels" -}}
{{- $labels := dict "app.kubernetes.io/name" .Chart.Name "app.kubernetes.io/instance" .Release.Name "app.kubernetes.io/managed-by" .Release.Service "app.kubernetes.io/part-of" "russet" "app.kubernetes.io/version" .Chart.AppVersion "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) -}}
{{- mergeOverwrite $labels (.Values.commonLabels | default dict) | toYaml -}}
{{- end -}}

{{- /* clusterctl removes what has the label of a provider together with the provider: never the objects of users. */ -}}
{{- define "capi-provider.programLabels" -}}
{{ include "capi-provider.labels" . }}
cluster.x-k8s.io/provider: infrastructure-scaleway-applesilicon
{{- end -}}

{{- define "capi-provider.serviceAccount" -}}
{{- default (include "capi-provider.fullname" .) .Values.serviceAccount.name -}}
{{- end -}}

{{- define "capi-provider.secretsNamespace" -}}
{{- default .Release.Namespace .Values.provider.secretsNamespace -}}
{{- end -}}

{{- define "capi-provider.cluster" -}}
{{- default (include "capi-provider.fullname" .) .Values.cluster.name -}}
{{- end -}}

{{- define "capi-provider.bootstrapSecret" -}}
{{- printf "%s-noop-bootstrap" (include "capi-provider.fullname" .) -}}
{{- end -}}

{{- define "capi-provider.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- /* Namespaces with fleets, the release's own first, each once; JSON. */ -}}
{{- define "capi-provider.fleetNamespaces" -}}
{{- prepend .Values.provider.fleetNamespaces .Release.Namespace | uniq | toJson -}}
{{- end -}}

{{- /* Namespaces with Secrets, Leases and ServiceAccounts of ours, each once; JSON. */ -}}
{{- define "capi-provider.ownNamespaces" -}}
{{- append (include "capi-provider.fleetNamespaces" . | fromJsonArray) (include "capi-provider.secretsNamespace" .) | uniq | toJson -}}
{{- end -}}

{{- /* The fleets that are on, completed from the defaults; JSON: key to fleet. */ -}}
{{- define "capi-provider.fleets" -}}
{{- $fleets := dict -}}
{{- range $key, $given := .Values.fleets -}}
{{- $fleet := mergeOverwrite (deepCopy $.Values.fleetDefaults) (deepCopy ($given | default dict)) -}}
{{- if $fleet.enabled -}}
{{- if not $fleet.name -}}
{{- $_ := set $fleet "name" (printf "%s-%s-fleet" $.Release.Name $key | trunc 50 | trimSuffix "-") -}}
{{- end -}}
{{- $_ := set $fleets $key $fleet -}}
{{- end -}}
{{- end -}}
{{- $fleets | toJson -}}
{{- end -}}

{{- /* The fleets of cache nodes that are on, whole; JSON: their place in the values to fleet. A further one is as kuraFleet but for
what it says, and never has its name. */ -}}
{{- define "capi-provider.kuraFleets" -}}
{{- $fleets := dict -}}
{{- with .Values.kuraFleet -}}
{{- if .enabled -}}
{{- $name := default (printf "%s-kura-fleet" $.Release.Name | trunc 50 | trimSuffix "-") .name -}}
{{- $_ := set $fleets "kuraFleet" (set (deepCopy .) "name" $name) -}}
{{- end -}}
{{- end -}}
{{- range $key, $given := .Values.kuraFleets -}}
{{- $fleet := mergeOverwrite (omit (deepCopy $.Values.kuraFleet) "name") (deepCopy ($given | default dict)) -}}
{{- if $fleet.enabled -}}
{{- if not $fleet.name -}}
{{- $_ := set $fleet "name" (printf "%s-kura-%s-fleet" $.Release.Name $key | trunc 50 | trimSuffix "-") -}}
{{- end -}}
{{- $_ := set $fleets (printf "kuraFleets.%s" $key) $fleet -}}
{{- end -}}
{{- end -}}
{{- $fleets | toJson -}}
{{- end -}}

{{- /* Volumes on the disks of cache nodes are made by a provisioner of our own; empty if not. */ -}}
{{- define "capi-provider.localPath" -}}
{{- if and .Values.localPath.enabled (include "capi-provider.kuraFleets" . | fromJson) -}}
{{- printf "%s-local-path" (include "capi-provider.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- /* What the schema cannot say. */ -}}
{{- define "capi-provider.check" -}}
{{- $fleets := include "capi-provider.fleets" . | fromJson -}}
{{- if and $fleets (not .Values.cluster.enabled) -}}
{{- fail (printf "fleet %s is enabled and cluster.enabled is false: a fleet needs its Cluster, set cluster.enabled=true" (keys $fleets | sortAlpha | first)) -}}
{{- end -}}
{{- $names := dict -}}
{{- range $key, $fleet := $fleets -}}
{{- if hasKey $names $fleet.name -}}
{{- fail (printf "fleets %s and %s both have the name %s: give one of them another fleets.<key>.name" (get $names $fleet.name) $key $fleet.name) -}}
{{- end -}}
{{- $_ := set $names $fleet.name $key -}}
{{- if regexMatch "[0-9]" $fleet.machine.os -}}
{{- fail (printf "fleets.%s.machine.os is %q: name a macOS family such as Tahoe, not a version; a version is withdrawn one day, and no host would be taken any more" $key $fleet.machine.os) -}}
{{- end -}}
{{- if not (regexMatch "^v[0-9]+\\.[0-9]+\\.[0-9]+([-+][0-9A-Za-z.+-]+)?$" $fleet.version) -}}
{{- fail (printf "fleets.%s.version is %q: write v and the full version that its kubelets report, for example v1.35.4; Cluster API compares them to the letter" $key $fleet.version) -}}
{{- end -}}
{{- if not (or $fleet.adoptPoolPrefix $.Values.provider.defaultAdoptPoolPrefix) -}}
{{- fail (printf "fleets.%s.adoptPoolPrefix is empty and so is provider.defaultAdoptPoolPrefix: say how the names of hosts begin that it may take" $key) -}}
{{- end -}}
{{- if $fleet.ghActionsRunner.enabled -}}
{{- if not $fleet.ghActionsRunner.ghOrg -}}
{{- fail (printf "fleets.%s.ghActionsRunner.ghOrg is empty: say in which GitHub organization its runners register" $key) -}}
{{- end -}}
{{- if not $fleet.ghActionsRunner.ghRunnerVersion -}}
{{- fail (printf "fleets.%s.ghActionsRunner.ghRunnerVersion is empty: say which version of the runner to install, for example 2.330.0" $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $places := dict -}}
{{- range $name, $key := $names -}}
{{- $_ := set $places $name (printf "fleets.%s" $key) -}}
{{- end -}}
{{- range $place, $fleet := include "capi-provider.kuraFleets" . | fromJson -}}
{{- if not $.Values.cluster.enabled -}}
{{- fail (printf "%s is enabled and cluster.enabled is false: a fleet needs its Cluster, set cluster.enabled=true" $place) -}}
{{- end -}}
{{- if hasKey $places $fleet.name -}}
{{- fail (printf "%s and %s both have the name %s: give one of them another name" $place (get $places $fleet.name) $fleet.name) -}}
{{- end -}}
{{- $_ := set $places $fleet.name $place -}}
{{- if not (regexMatch "^v[0-9]+\\.[0-9]+\\.[0-9]+([-+][0-9A-Za-z.+-]+)?$" $fleet.kubernetesVersion) -}}
{{- fail (printf "%s.kubernetesVersion is %q: write v and the full version that its kubelets report, for example v1.35.4; Cluster API compares them to the letter" $place $fleet.kubernetesVersion) -}}
{{- end -}}
{{- if and $fleet.machine.privateNetworkCIDR (not $fleet.machine.privateNetworkName) -}}
{{- fail (printf "%s.machine.privateNetworkCIDR is set and %s.machine.privateNetworkName is empty: say how the Private Network is called" $place $place) -}}
{{- end -}}
{{- if and (eq $fleet.machine.kind "instance") $fleet.machine.adoptNamePrefix -}}
{{- fail (printf "%s.machine.adoptNamePrefix is set and %s.machine.kind is instance: Instances are made, never taken" $place $place) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.tailscaleEgress.enabled (not .Values.tailscaleEgress.magicDNSSuffix) -}}
{{- fail "tailscaleEgress.enabled is true and tailscaleEgress.magicDNSSuffix is empty: say where the tailnet's names end, for example tail0123.ts.net" -}}
{{- end -}}
{{- if and .Values.tailscale.enabled (not .Values.tailscale.authKeySecretName) -}}
{{- fail "tailscale.enabled is true and tailscale.authKeySecretName is empty: name the Secret with the key auth-key" -}}
{{- end -}}
{{- if and .Values.hostLogs.enabled (not .Values.tailscale.enabled) -}}
{{- fail "hostLogs.enabled is true and tailscale.enabled is false: logs travel over the tailnet" -}}
{{- end -}}
{{- if and .Values.hostLogs.enabled (not .Values.hostLogs.url) -}}
{{- fail "hostLogs.enabled is true and hostLogs.url is empty: say where logs go" -}}
{{- end -}}
{{- if and .Values.vmClusterEgress.clusterDNSIP (not .Values.vmClusterEgress.kuraServiceCIDR) -}}
{{- fail "vmClusterEgress.clusterDNSIP is set and vmClusterEgress.kuraServiceCIDR is empty: hosts refuse one without the other" -}}
{{- end -}}
{{- end -}}
