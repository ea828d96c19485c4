//! Applying, pruning and sharing objects on a real API server.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Service};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Client, ResourceExt};
use russet_controller::apply::{Change, Error, Force, SharedChange};
use russet_controller::conditions::{self, ConditionStatus};
use russet_controller::finalizer::Event;
use russet_controller::metrics::ControllerMetrics;
use russet_controller::{Applier, Children, Class, Classify, Desired, Leadership, Owner};
use russet_telemetry::Metrics;
use russet_testkit::wait::{self, Look, PATIENCE};
use russet_testkit::{TestCluster, crds};
use serde_json::{Value, json};

/// A writer that remembers nothing, as after a restart.
fn applier(client: &Client) -> Applier {
    Applier::new(
        client.clone(),
        "e2e-manager",
        Leadership::always("e2e"),
        ControllerMetrics::new(&Metrics::new()),
    )
}

fn config_map(namespace: &str, name: &str, data: Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}, "data": data}))
        .expect("a ConfigMap")
}

#[tokio::test]
async fn fields_are_added_removed_and_left_to_others() -> Result<()> {
    let sandbox = TestCluster::shared().await?.sandbox("apply").await?;
    let client = sandbox.client().await?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let ours = applier(&client);
    let one = Desired::new(&config_map(sandbox.namespace(), "a", json!({"x": "1", "y": "1"})))?;
    let applied = ours.apply(&one, None).await?;
    ensure!(
        applied.change == Change::Created && applied.pruned.is_empty(),
        "{applied:?}"
    );

    // As we left it: no request, neither now nor after a restart.
    ensure!(
        ours.apply(&one, Some(&applied.object)).await?.change == Change::Skipped,
        "it was sent again"
    );
    ensure!(
        applier(&client).apply(&one, Some(&applied.object)).await?.change == Change::Skipped,
        "a restart sent it again"
    );

    // Another writer adds a field of its own; it is none of our business, before and after we change ours.
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"theirs": "1"}})),
    )
    .await?;
    ensure!(
        ours.apply(&one, None).await?.change == Change::Skipped,
        "a foreign field made us write"
    );
    let two = Desired::new(&config_map(sandbox.namespace(), "a", json!({"x": "2"})))?;
    ensure!(
        ours.apply(&two, None).await?.change == Change::Updated,
        "the change was not written"
    );
    let data = api.get("a").await?.data.context("data")?;
    ensure!(
        data == [("theirs".to_owned(), "1".to_owned()), ("x".to_owned(), "2".to_owned())].into(),
        "{data:?}"
    );

    // A cache that lags behind our own write does not make us write again.
    ensure!(
        ours.apply(&two, Some(&applied.object)).await?.change == Change::Skipped,
        "a stale cache made us write"
    );

    // What others do to our fields is put right.
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"data": {"x": "vandal"}})),
    )
    .await?;
    ensure!(
        ours.apply(&two, None).await?.change == Change::Updated,
        "the damage was not repaired"
    );
    ensure!(
        api.get("a").await?.data.context("data")?.get("x").map(String::as_str) == Some("2"),
        "x is wrong"
    );
    Ok(())
}

#[tokio::test]
async fn a_field_of_another_manager_is_a_typed_conflict_unless_forced() -> Result<()> {
    let sandbox = TestCluster::shared().await?.sandbox("apply-conflict").await?;
    let client = sandbox.client().await?;
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), sandbox.namespace());
    let theirs = config_map(sandbox.namespace(), "a", json!({"x": "theirs"}));
    let theirs = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": theirs.metadata, "data": theirs.data});
    api.patch("a", &PatchParams::apply("the-other-one"), &Patch::Apply(theirs))
        .await?;

    let desired = Desired::new(&config_map(sandbox.namespace(), "a", json!({"x": "ours"})))?;
    let polite = applier(&client).with_force(Force::No);
    match polite.apply(&desired, None).await {
        Err(error @ Error::Owned { .. }) => {
            ensure!(error.class() == Class::Transient, "retrying at once cannot help");
            let Error::Owned { conflicts, .. } = &error else {
                bail!("unreachable")
            };
            let [conflict] = conflicts.as_slice() else {
                bail!("{conflicts:?}")
            };
            ensure!(
                conflict.manager == "the-other-one" && conflict.field == ".data.x",
                "{conflict:?}"
            );
            ensure!(error.to_string().contains("the-other-one"), "{error}");
        }
        other => bail!("expected a conflict, got {other:?}"),
    }
    ensure!(
        applier(&client).apply(&desired, None).await?.change == Change::Updated,
        "forcing takes the field"
    );
    Ok(())
}

/// Kinds that the API server rewrites in every way it has: defaults, quantities, sorted and merged lists, omitted zero values,
/// write-only fields. None of it may look like a lost field or a reason to write again.
#[tokio::test]
async fn what_the_server_normalises_is_neither_lost_nor_written_again() -> Result<()> {
    let sandbox = TestCluster::shared().await?.sandbox("apply-normal").await?;
    let client = sandbox.client().await?;
    let pod = json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {
            "hostNetwork": false, "priority": 0, "serviceAccountName": "", "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "main", "image": "x", "args": ["a", "b", "a"], "command": [],
                "env": [{"name": "Z", "value": "1"}, {"name": "A", "value": ""}, {"name": "E"}],
                "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP"}, {"containerPort": 53, "protocol": "TCP"}],
                "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"cpu": 2, "memory": "2147483648"}},
                "readinessProbe": {"httpGet": {"path": "/", "port": "web"}, "initialDelaySeconds": 0, "periodSeconds": 1},
                "volumeMounts": [{"name": "b", "mountPath": "/b"}, {"name": "a", "mountPath": "/a", "readOnly": false}],
            }],
            "tolerations": [{"operator": "Exists"}, {"key": "tuist.dev/x", "operator": "Equal", "value": "", "effect": "NoSchedule"}],
            "volumes": [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {"sizeLimit": "1024Mi"}}],
            "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "h", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "x"}}}],
        },
    });
    let objects = [
        json!({"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "s"}, "spec": {
            "replicas": 0, "serviceName": "s", "selector": {"matchLabels": {"app": "x"}}, "template": pod, "minReadySeconds": 0,
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "10240Mi"}}}}],
        }}),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": {
            "replicas": 0, "paused": false, "selector": {"matchLabels": {"app": "x"}}, "template": pod,
            "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}},
        }}),
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "svc"}, "spec": {
            "selector": {"app": "x"}, "type": "NodePort", "externalTrafficPolicy": "Local", "publishNotReadyAddresses": false,
            "ports": [{"name": "b", "port": 443, "targetPort": "web"}, {"name": "a", "port": 80}, {"name": "u", "port": 443, "protocol": "UDP"}],
        }}),
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "sec"}, "type": "Opaque",
            "stringData": {"token": "canary", "empty": ""}, "data": {"other": "eA=="}}),
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "np"}, "spec": {
            "podSelector": {}, "policyTypes": ["Ingress", "Egress"],
            "ingress": [{"from": [{"podSelector": {}}], "ports": [{"port": "web"}, {"port": 53, "protocol": "UDP"}]}, {}],
            "egress": [],
        }}),
        json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "rq"}, "spec": {
            "hard": {"requests.cpu": "8000m", "limits.memory": "1024Gi", "pods": 10}}}),
        json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "pdb"}, "spec": {
            "minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}}}),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"}, "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list", "get"]}]}),
    ];
    for mut value in objects {
        value["metadata"]["namespace"] = sandbox.namespace().into();
        let kind = value["kind"].as_str().unwrap_or_default().to_owned();
        let gvk = GroupVersionKind::try_from(serde_json::from_value::<kube::core::TypeMeta>(value.clone())?)?;
        let mut resource = ApiResource::from_gvk(&gvk);
        if kind == "NetworkPolicy" {
            resource.plural = "networkpolicies".to_owned();
        }
        let object: DynamicObject = serde_json::from_value(value)?;
        let desired = Desired::dynamic(&resource, &object)?;
        let ours = applier(&client);
        let first = ours.apply(&desired, None).await.with_context(|| kind.clone())?;
        ensure!(first.pruned.is_empty(), "{kind}: taken for lost: {:?}", first.pruned);
        ensure!(
            ours.apply(&desired, None).await?.change == Change::Skipped,
            "{kind} was sent twice"
        );
        let restarted = applier(&client).apply(&desired, None).await?.change;
        // Secrets carry no digest, so after a restart they are sent once more, which changes nothing.
        let expected = if kind == "Secret" {
            Change::Unchanged
        } else {
            Change::Skipped
        };
        ensure!(restarted == expected, "{kind} after a restart: {restarted:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_set_of_children_is_synced_and_what_is_not_ours_is_left_alone() -> Result<()> {
    let sandbox = TestCluster::shared().await?.sandbox("sync").await?;
    let (client, namespace) = (sandbox.client().await?, sandbox.namespace());
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let parent = api
        .create(&PostParams::default(), &config_map(namespace, "parent", json!({})))
        .await?;
    let (ours, owner) = (applier(&client), Owner::of(&parent)?);
    let kinds = [Children::listed::<ConfigMap>()];
    let child = |name: &str| Desired::new(&config_map(namespace, name, json!({"k": name})));

    let synced = ours
        .sync(&owner, &[child("c1")?, child("c2")?, child("c3")?], &kinds)
        .await?;
    let names: Vec<String> = synced.applied.iter().map(|applied| applied.object.name_any()).collect();
    ensure!(
        names == ["c1", "c2", "c3"] && synced.deleted.is_empty(),
        "{names:?} {:?}",
        synced.deleted
    );

    // Things that look like children: another manager's, another owner's, and one that merely points at our parent.
    let reference = json!([owner.reference()]);
    let stranger = |name: &str, labels: Value, references: &Value| -> Result<ConfigMap> {
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels, "ownerReferences": references});
        Ok(serde_json::from_value(json!({"metadata": metadata}))?)
    };
    for object in [
        stranger(
            "other-manager",
            json!({"app.kubernetes.io/managed-by": "another", "tuist.dev/owner-uid": owner.uid()}),
            &reference,
        )?,
        stranger(
            "other-owner",
            json!({"app.kubernetes.io/managed-by": "e2e-manager", "tuist.dev/owner-uid": "elsewhere"}),
            &json!([]),
        )?,
        stranger("attached", json!({}), &reference)?,
    ] {
        api.create(&PostParams::default(), &object).await?;
    }

    let synced = ours.sync(&owner, &[child("c1")?, child("c4")?], &kinds).await?;
    let mut deleted: Vec<String> = synced.deleted.iter().map(|target| target.name().to_owned()).collect();
    deleted.sort();
    ensure!(deleted == ["c2", "c3"], "{deleted:?}");
    ensure!(synced.applied[0].change == Change::Skipped, "c1 was written again");
    for (name, there) in [
        ("c1", true),
        ("c2", false),
        ("c3", false),
        ("c4", true),
        ("other-manager", true),
        ("other-owner", true),
        ("attached", true),
    ] {
        ensure!(
            api.get_opt(name).await?.is_some() == there,
            "{name} should {}exist",
            if there { "" } else { "not " }
        );
    }

    // A name that is taken is refused before anything is touched.
    api.create(
        &PostParams::default(),
        &config_map(namespace, "taken", json!({"k": "theirs"})),
    )
    .await?;
    match ours.sync(&owner, &[child("taken")?], &kinds).await {
        Err(error @ Error::NotOurs { .. }) => ensure!(error.to_string().contains("taken"), "{error}"),
        other => bail!("expected a refusal, got {other:?}"),
    }
    ensure!(
        api.get("taken").await?.data.context("data")?["k"] == "theirs",
        "it was overwritten"
    );
    ensure!(api.get_opt("c1").await?.is_some(), "a failed sync must not prune");

    // Garbage collection knows whose children they are.
    api.delete("parent", &DeleteParams::background()).await?;
    wait::until_true("the children to go with their owner", PATIENCE, || async {
        Ok(api.get_opt("c1").await?.is_none())
    })
    .await
}

fn widget_crd(group: &str, fields: Value) -> CustomResourceDefinition {
    serde_json::from_value(json!({
        "metadata": {"name": format!("widgets.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"kind": "Widget", "plural": "widgets"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": {"type": "object", "properties": fields}},
            }}}],
        },
    }))
    .expect("a CRD")
}

/// Incident `crd-pruning`: a new controller against an old CRD.
#[tokio::test]
async fn fields_unknown_to_an_old_crd_are_reported_and_stored_after_its_upgrade() -> Result<()> {
    let sandbox = TestCluster::shared().await?.sandbox("apply-pruned").await?;
    let client = sandbox.client().await?;
    let group = format!("{}.e2e.russet.dev", sandbox.namespace());
    let old = json!({"size": {"type": "integer"}, "parts": {"type": "array", "items": {"type": "object", "properties": {"name": {"type": "string"}}}}});
    let new = json!({"size": {"type": "integer"}, "enabled": {"type": "boolean"}, "parts": {"type": "array", "items": {"type": "object",
        "properties": {"name": {"type": "string"}, "colour": {"type": "string"}}}}});
    crds::install(&client, &[widget_crd(&group, old)]).await?;

    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(&group, "v1", "Widget"));
    let widget: DynamicObject = serde_json::from_value(json!({
        "apiVersion": format!("{group}/v1"), "kind": "Widget",
        "metadata": {"name": "w", "namespace": sandbox.namespace()},
        "spec": {"size": 3, "enabled": false, "parts": [{"name": "a", "colour": "red"}, {"name": "b"}]},
    }))?;
    let desired = Desired::dynamic(&resource, &widget)?;
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), sandbox.namespace(), &resource);
    let lost = ["spec.enabled", "spec.parts[name=a].colour"];

    let ours = applier(&client);
    for round in ["created", "again, from memory"] {
        let applied = ours.apply(&desired, None).await?;
        ensure!(applied.pruned == lost, "{round}: {:?}", applied.pruned);
        ensure!(
            applied.object.data["spec"] == json!({"size": 3, "parts": [{"name": "a"}, {"name": "b"}]}),
            "{round}: {:?}",
            applied.object.data
        );
        let condition = conditions::fields_stored(&applied.pruned);
        ensure!(
            condition.status == ConditionStatus::False && condition.reason.as_deref() == Some("FieldsPruned"),
            "{condition:?}"
        );
    }
    // The digest in the annotation is that of the whole object; it must not hide the loss after a restart.
    ensure!(
        applier(&client).apply(&desired, None).await?.pruned == lost,
        "forgotten after a restart"
    );

    crds::install(&client, &[widget_crd(&group, new)]).await?;
    wait::until("the fields to be stored", PATIENCE, || async {
        let applied = ours.apply(&desired, None).await?;
        Ok(Look::done_if(applied.pruned.is_empty(), applied.pruned))
    })
    .await?;
    ensure!(
        api.get("w").await?.data["spec"] == widget.data["spec"],
        "not what was wanted"
    );
    ensure!(
        ours.apply(&desired, None).await?.change == Change::Skipped,
        "written again"
    );
    // An object that is refused for another reason is still refused, with the server's reason.
    let mut wrong = widget.clone();
    wrong.data["spec"]["size"] = json!("three");
    let error = applier(&client)
        .apply(&Desired::dynamic(&resource, &wrong)?, None)
        .await
        .expect_err("a wrong type");
    ensure!(
        error.to_string().contains("spec.size") || error.to_string().contains(".size"),
        "{error}"
    );
    Ok(())
}

/// Incident `egress-service-race`: the Tailscale operator writes the same Service between our read and our write.
#[tokio::test]
async fn two_writers_of_one_object_lose_nothing() -> Result<()> {
    const ROUNDS: usize = 25;
    let sandbox = TestCluster::shared().await?.sandbox("shared").await?;
    let (client, namespace) = (sandbox.client().await?, sandbox.namespace().to_owned());
    let api: Api<Service> = Api::namespaced(client.clone(), &namespace);
    let initial: Service = serde_json::from_value(json!({
        "metadata": {"name": "egress", "namespace": namespace},
        "spec": {"type": "ExternalName", "externalName": "placeholder.invalid"},
    }))?;

    let ours = async {
        let applier = applier(&client);
        let (mut attempts, mut changes) = (0, Vec::new());
        for round in 0..ROUNDS {
            let written = applier
                .update_shared(initial.clone(), |service: &mut Service| {
                    service.labels_mut().insert(format!("ours-{round}"), "yes".to_owned());
                })
                .await?;
            attempts += written.attempts;
            changes.push(written.change);
        }
        anyhow::Ok((attempts, changes))
    };
    // The other writer replaces whole objects, as the operator does, and tries again when it was too late.
    let theirs = async {
        let mut conflicts = 0;
        for round in 0..ROUNDS {
            loop {
                let Some(mut service) = api.get_opt("egress").await? else {
                    tokio::task::yield_now().await;
                    continue;
                };
                service
                    .annotations_mut()
                    .insert(format!("theirs-{round}"), "yes".to_owned());
                match api.replace("egress", &PostParams::default(), &service).await {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.is_conflict() => conflicts += 1,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        anyhow::Ok(conflicts)
    };
    let ((attempts, changes), conflicts) = tokio::try_join!(ours, theirs)?;
    ensure!(
        changes[0] == SharedChange::Created && changes[1..].iter().all(|change| *change == SharedChange::Updated),
        "{changes:?}"
    );
    ensure!(
        attempts + conflicts > u32::try_from(ROUNDS)?,
        "the writers never met, so nothing was tested"
    );
    let service = api.get("egress").await?;
    for round in 0..ROUNDS {
        ensure!(
            service.labels().contains_key(&format!("ours-{round}")),
            "our label {round} was lost"
        );
        ensure!(
            service.annotations().contains_key(&format!("theirs-{round}")),
            "their annotation {round} was lost"
        );
    }
    let again = applier(&client)
        .update_shared(initial, |service: &mut Service| {
            service.labels_mut().insert("ours-0".to_owned(), "yes".to_owned());
        })
        .await?;
    ensure!(again.change == SharedChange::Unchanged, "{:?}", again.change);
    Ok(())
}

#[tokio::test]
async fn a_finalizer_is_stored_before_the_first_effect_and_removed_after_the_clean_up() -> Result<()> {
    const NAME: &str = "e2e.russet.dev/finalizer";
    let sandbox = TestCluster::shared().await?.sandbox("finalizer").await?;
    let (client, namespace) = (sandbox.client().await?, sandbox.namespace());
    let api: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let ours = applier(&client);
    let fresh = api
        .create(&PostParams::default(), &config_map(namespace, "a", json!({})))
        .await?;

    let Event::Apply(stored) = ours.finalized(&fresh, NAME).await? else {
        bail!("expected to apply")
    };
    ensure!(
        stored.finalizers() == [NAME] && api.get("a").await?.finalizers() == [NAME],
        "not stored first"
    );
    // From a stale cache the same step is a conflict, which is retried at once, and no second finalizer.
    let error = ours.finalized(&fresh, NAME).await.expect_err("a stale object");
    ensure!(error.class() == Class::Conflict, "{error}");

    // Another controller adds its own in the meantime; ours leaves it alone.
    let patch = Patch::Merge(json!({"metadata": {"finalizers": [NAME, "theirs.example/f"]}}));
    api.patch("a", &PatchParams::default(), &patch).await?;
    api.delete("a", &DeleteParams::default()).await?;
    let Event::Cleanup(going) = ours.finalized(&api.get("a").await?, NAME).await? else {
        bail!("expected to clean up")
    };
    ours.remove_finalizer(&going, NAME).await?;
    ensure!(
        api.get("a").await?.finalizers() == ["theirs.example/f"],
        "only ours goes"
    );
    ensure!(
        matches!(ours.finalized(&api.get("a").await?, NAME).await?, Event::Gone),
        "nothing left to do"
    );
    api.patch(
        "a",
        &PatchParams::default(),
        &Patch::Merge(json!({"metadata": {"finalizers": null}})),
    )
    .await?;
    wait::until_true("the object to be gone", PATIENCE, || async {
        Ok(api.get_opt("a").await?.is_none())
    })
    .await?;
    ours.remove_finalizer(&going, NAME).await?;
    Ok(())
}
