{{- /* The command line. Flags that are off are left out, so that an older program is not told of them. */ -}}
{{- define "capi-provider.args" -}}
{{- $provider := .Values.provider -}}
{{- $args := list "--leader-elect" "--metrics-bind-address=:8080" "--health-probe-bind-address=:8081" -}}
{{- $args = append $args (printf "--secrets-namespace=%s" (include "capi-provider.secretsNamespace" .)) -}}
{{- if $provider.watchOnlyFleetNamespaces -}}
{{- $args = append $args (printf "--namespace=%s" (include "capi-provider.fleetNamespaces" . | fromJsonArray | join ",")) -}}
{{- end -}}
{{- with $provider.watchFilter -}}{{- $args = append $args (printf "--watch-filter=%s" .) -}}{{- end -}}
{{- with $provider.apiServerURL -}}{{- $args = append $args (printf "--api-server-url=%s" .) -}}{{- end -}}
{{- with $provider.nodeIdentityClusterRole -}}{{- $args = append $args (printf "--node-identity-cluster-role=%s" .) -}}{{- end -}}
{{- if $provider.dryRun -}}{{- $args = append $args "--dry-run" -}}{{- end -}}
{{- with $provider.maxHourlySpend -}}{{- $args = append $args (printf "--max-hourly-spend=%v" .) -}}{{- end -}}
{{- $args = append $args (printf "--machine-max-concurrent-reconciles=%v" $provider.machineMaxConcurrentReconciles) -}}
{{- with $provider.bootstrap.mode -}}
{{- $args = append $args (printf "--host-bootstrap=%s" .) -}}
{{- if eq . "stand-in" -}}{{- $args = append $args (printf "--stand-in-port=%v" $provider.bootstrap.standInPort) -}}{{- end -}}
{{- end -}}
{{- $args = append $args (printf "--bootstrap-reboot-after=%v" $provider.bootstrap.rebootAfter) -}}
{{- $args = append $args (printf "--bootstrap-max-attempts=%v" $provider.bootstrap.maxAttempts) -}}
{{- $args = append $args (printf "--tartkubelet-host-cpu=%v" .Values.tartKubelet.hostCPU) -}}
{{- $args = append $args (printf "--tartkubelet-host-memory-mb=%v" .Values.tartKubelet.hostMemoryMB) -}}
{{- $args = append $args (printf "--tartkubelet-max-pods=%v" .Values.tartKubelet.maxPods) -}}
{{- with .Values.runnerCacheVolume.gib -}}{{- $args = append $args (printf "--runner-cache-volume-gib=%v" .) -}}{{- end -}}
{{- with .Values.runnerCacheVolume.masterCapGib -}}{{- $args = append $args (printf "--cache-volume-master-cap-gib=%v" .) -}}{{- end -}}
{{- with .Values.runnerCacheVolume.casGib -}}{{- $args = append $args (printf "--cache-volume-cas-gib=%v" .) -}}{{- end -}}
{{- with .Values.tailscale -}}
{{- if .enabled -}}
{{- $args = concat $args (list "--tailscale-binaries-path=/opt/tailscale/tailscale-darwin-arm64.tar.gz" "--node-exporter-binary-path=/opt/node-exporter/node_exporter-darwin-arm64") -}}
{{- $args = append $args (printf "--tailscale-auth-key-secret-name=%s" .authKeySecretName) -}}
{{- with .tags -}}{{- $args = append $args (printf "--tailscale-tags=%s" (join "," .)) -}}{{- end -}}
{{- if .acceptRoutes -}}{{- $args = append $args "--tailscale-accept-routes" -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.hostLogs -}}
{{- if .enabled -}}
{{- $args = concat $args (list "--log-shipper-binary-path=/opt/log-shipper/tuist-log-shipper-darwin-arm64" (printf "--log-ship-url=%s" .url)) -}}
{{- with .env -}}{{- $args = append $args (printf "--log-ship-env=%s" .) -}}{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.vmClusterEgress.kuraServiceCIDR -}}{{- $args = append $args (printf "--vm-kura-egress-cidr=%s" .) -}}{{- end -}}
{{- with .Values.vmClusterEgress.clusterDNSIP -}}{{- $args = append $args (printf "--vm-cluster-dns-ip=%s" .) -}}{{- end -}}
{{- with .Values.vmCachePrivateNetwork.name -}}{{- $args = append $args (printf "--vm-cache-pn-name=%s" .) -}}{{- end -}}
{{- with .Values.vmCachePrivateNetwork.cidr -}}{{- $args = append $args (printf "--vm-cache-pn-cidr=%s" .) -}}{{- end -}}
{{- with .Values.sshIngressAllowCIDRs -}}{{- $args = append $args (printf "--ssh-ingress-allow-cidrs=%s" (join "," .)) -}}{{- end -}}
{{- with .Values.fleetSpread.deployment -}}{{- $args = append $args (printf "--fleet-spread-deployment=%s" .) -}}{{- end -}}
{{- with .Values.fleetSpread.namespace -}}{{- $args = append $args (printf "--fleet-spread-namespace=%s" .) -}}{{- end -}}
{{- with .Values.tailscaleEgress -}}
{{- if .enabled -}}
{{- $args = concat $args (list (printf "--tailscale-egress-proxy-group=%s" .proxyGroup) (printf "--tailscale-egress-namespace=%s" .namespace) (printf "--tailscale-egress-magicdns-suffix=%s" .magicDNSSuffix)) -}}
{{- end -}}
{{- end -}}
{{- if include "capi-provider.localPath" . -}}{{- $args = append $args (printf "--linux-local-storage-class=%s" .Values.localPath.storageClassName) -}}{{- end -}}
{{- with $provider.defaultAdoptPoolPrefix -}}{{- $args = append $args (printf "--default-adopt-pool-prefix=%s" .) -}}{{- end -}}
{{- with $provider.orphanReclaim -}}
{{- with .zones -}}{{- $args = append $args (printf "--orphan-reclaim-zones=%s" (join "," .)) -}}{{- end -}}
{{- $args = append $args (printf "--orphan-reclaim-interval=%s" .interval) -}}
{{- with .claimNamePrefix -}}{{- $args = append $args (printf "--orphan-reclaim-claim-name-prefix=%s" .) -}}{{- end -}}
{{- end -}}
{{- $args = append $args (printf "--log-format=%s" $provider.logFormat) -}}
{{- concat $args $provider.extraArgs | toYaml -}}
{{- end -}}
