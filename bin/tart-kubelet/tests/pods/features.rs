//! What a Pod may ask for, on a Mac: each row of docs/pod-support.md that no other test of this program shows.

use crate::lives::WAITS;
use crate::stage::{IMAGE, Mac, container, ended_before, is, phase, restarts};
use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Secret};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use russet_sim_tart::Image;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// Waits for an event of a Pod that says something.
async fn until_told(mac: &Mac, pod: &str, reason: &str, words: &str) -> Result<()> {
    let all = async || Ok(mac.all::<Event>().list(&ListParams::default()).await?.items);
    let fits = |event: &Event| {
        event.involved_object.name.as_deref() == Some(pod)
            && event.reason.as_deref() == Some(reason)
            && event.message.as_deref().is_some_and(|message| message.contains(words))
    };
    let what = format!("an event {reason} of {pod}");
    mac.host.until(&what, all, |all| all.iter().any(fits)).await.map(drop)
}

pub(crate) async fn a_pod_follows_what_is_changed_about_it_and_what_it_refers_to() -> Result<()> {
    let (mac, _agent) = Mac::started("feats1").await?;
    mac.control.push(
        "ghcr.io/acme/mac:v2",
        &Image {
            label: "second".to_owned(),
            ..Image::default()
        },
    )?;
    mac.make::<ConfigMap>(json!({"metadata": {"name": "conf"}, "data": {"key": "old"}}))
        .await?;
    let script = "while :; do
        cp /etc/pod/colour /opt/work/.c; mv /opt/work/.c /opt/work/colour
        cp /etc/conf/key /opt/work/.k; mv /opt/work/.k /opt/work/key
        cp /etc/conf/late /opt/work/late 2>/dev/null
        sleep 0.1
    done";
    let more = json!({
        "metadata": {"labels": {"colour": "red"}},
        "spec": {
            "terminationGracePeriodSeconds": 1,
            "containers": [{"volumeMounts": [
                {}, {"name": "pod", "mountPath": "/etc/pod"}, {"name": "conf", "mountPath": "/etc/conf"},
            ]}],
            "volumes": [
                {},
                {"name": "pod", "downwardAPI": {"items": [
                    {"path": "colour", "fieldRef": {"fieldPath": "metadata.labels['colour']"}},
                ]}},
                {"name": "conf", "projected": {"sources": [
                    {"configMap": {"name": "conf"}}, {"configMap": {"name": "late", "optional": true}},
                ]}},
            ],
        },
    });
    let pod = mac.run("job", script, more).await?;
    // Another Pod that refers to the same object.
    let twin = json!({"spec": {
        "containers": [{"volumeMounts": [{}, {"name": "conf", "mountPath": "/etc/conf"}]}],
        "volumes": [{}, {"name": "conf", "configMap": {"name": "conf"}}],
    }});
    let script = "until [ $(cat /etc/conf/key) = new ]; do sleep 0.1; done";
    mac.run("twin", script, twin).await?;
    mac.until_work(&pod, "colour", |said| said == "red").await?;
    mac.until_work(&pod, "key", |said| said == "old").await?;
    mac.until_running("twin").await?;
    mac.change::<Pod>("job", json!({"metadata": {"labels": {"colour": "blue"}}}))
        .await?;
    mac.until_work(&pod, "colour", |said| said == "blue").await?;
    mac.change::<ConfigMap>("conf", json!({"data": {"key": "new"}})).await?;
    mac.until_work(&pod, "key", |said| said == "new").await?;
    mac.until_ended("twin").await?;
    // One that was not there when the Pod started.
    mac.make::<ConfigMap>(json!({"metadata": {"name": "late"}, "data": {"late": "here"}}))
        .await?;
    mac.until_work(&pod, "late", |said| said == "here").await?;

    let before = mac.until_running("job").await?;
    let image = json!({"spec": {"containers": [{"name": "main", "image": "ghcr.io/acme/mac:v2"}]}});
    mac.change::<Pod>("job", image).await?;
    let again = |pod: &Pod| restarts(pod) == Some(1) && is(pod, "Ready");
    let after = mac.until("job", "a start with the new image", again).await?;
    let (before, after) = (
        container(&before).context("before")?,
        container(&after).context("after")?,
    );
    ensure!(after.image == "ghcr.io/acme/mac:v2", "{after:?}");
    ensure!(before.image_id != after.image_id, "{after:?}");
    until_told(&mac, "job", "Killing", "definition changed, will be restarted").await?;

    mac.change::<Pod>("job", json!({"spec": {"activeDeadlineSeconds": 1}}))
        .await?;
    let over = mac.until("job", "its end", |pod| phase(pod) == "Failed").await?;
    ensure!(over.status.context("a status")?.reason.as_deref() == Some("DeadlineExceeded"));

    // Each object is asked for once, listed once and watched, however many Pods refer to it; nobody asks again and again.
    let audit = mac.host.cluster.audit()?.of_user(&mac.host.node_user())?;
    let asked = |verb: &str, name: &str| {
        let entries = audit.iter().filter(|entry| {
            let object = entry.object();
            (object.resource.as_str(), entry.code()) == ("configmaps", 200) && entry.verb == verb
        });
        entries.filter(|entry| entry.request_uri.contains(name)).count()
    };
    let looks = asked("get", "configmaps/conf");
    ensure!(looks == 1, "{looks} looks at one object");
    let lists = asked("list", "metadata.name%3Dconf");
    ensure!(lists == 1, "{lists} lists of one object");
    ensure!(asked("watch", "metadata.name%3Dconf") >= 1);
    mac.stayed_within_its_rights()
}

pub(crate) async fn a_container_knows_its_address_and_leaves_its_last_words() -> Result<()> {
    let (mac, _agent) = Mac::started("feats2").await?;
    let script = r#"
        [ "$POD_IP" = "$GUEST_ADDRESS" ] || exit 11
        [ "$POD_IPS" = "$POD_IP" ] || exit 12
        [ "$HOST_IP" = 127.77.9.9 ] || exit 13
        [ "$URL" = "http://$POD_IP:80" ] || exit 14
        [ "$0" = "$POD_IP" ] || exit 15
        echo "I was at $POD_IP" >/dev/termination-log
        exit 42
    "#;
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let more = json!({"spec": {"containers": [{
        "args": ["$(POD_IP)"],
        "env": [
            field("POD_IP", "status.podIP"), field("POD_IPS", "status.podIPs"), field("HOST_IP", "status.hostIP"),
            {"name": "URL", "value": "http://$(POD_IP):80"},
        ],
    }]}});
    mac.run("job", script, more).await?;
    // Beside it, one that says nothing but what is in its log.
    let silent = json!({"spec": {"containers": [{"terminationMessagePolicy": "FallbackToLogsOnError"}]}});
    mac.run("silent", "echo something broke; exit 3", silent).await?;
    let (pod, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 42, "{exit:?}");
    let address = pod.status.and_then(|status| status.pod_ip).context("an address")?;
    ensure!(exit.message == Some(format!("I was at {address}\n")), "{exit:?}");
    let (_, exit) = mac.until_ended("silent").await?;
    ensure!(
        exit.exit_code == 3 && exit.message.as_deref() == Some("something broke\n"),
        "{exit:?}"
    );
    // Another program of this machine may have such a file; what is in it is not from here.
    let outside = std::fs::read_to_string("/dev/termination-log").unwrap_or_default();
    ensure!(
        !outside.contains(&address),
        "a guest wrote into the devices of its host"
    );
    Ok(())
}

pub(crate) async fn volumes_of_every_kind_are_where_they_belong() -> Result<()> {
    let (mac, _agent) = Mac::started("feats3").await?;
    mac.make::<ConfigMap>(json!({"metadata": {"name": "conf"}, "data": {"key": "value"}}))
        .await?;
    mac.make::<Secret>(json!({"metadata": {"name": "hush"}, "stringData": {"word": "quiet"}}))
        .await?;
    let (host, disk) = (mac.host.path("host"), mac.host.path("disk"));
    for folder in [&host, &disk] {
        std::fs::create_dir(folder)?;
        std::fs::write(folder.join("there"), "before")?;
    }
    claim(&mac, "disk", json!({"local": {"path": disk}})).await?;
    let script = r#"
        [ "$(cat /opt/work/first)" = first ] || exit 11
        [ "$(cat /v/conf/key)" = value ] || exit 12
        [ "$(cat /v/hush/word)" = quiet ] || exit 13
        [ "$(cat /v/all/key)$(cat /v/all/secret/word)" = valuequiet ] || exit 14
        [ "$(cat /v/all/name)" = job ] || exit 15
        [ "$(cut -d. -f2 /v/all/token | tr '_-' '/+' | base64 -d 2>/dev/null | grep -c tuist-runners-dispatch)" = 1 ] || exit 16
        [ "$(cat /v/host/there)" = before ] || exit 17
        echo guest >/v/host/from-guest || exit 18
        [ "$(cat /v/disk/there)" = before ] || exit 19
        echo guest >/v/disk/from-guest || exit 20
        { echo no >/v/fixed/from-guest; } 2>/dev/null && exit 21
        { echo no >/v/conf/key; } 2>/dev/null && exit 22
        [ "$(cat /v/part)" = before ] || exit 23
        exit 0
    "#;
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/v/{name}")});
    let more = json!({"spec": {
        "initContainers": [{
            "name": "first", "image": IMAGE, "command": ["/bin/sh", "-c", "echo first >/opt/work/first"],
            "volumeMounts": [{"name": "work", "mountPath": "/opt/work"}],
        }],
        "containers": [{"volumeMounts": [
            {}, mount("conf"), mount("hush"), mount("all"), mount("host"), mount("disk"), mount("fixed"),
            {"name": "host", "mountPath": "/v/part", "subPath": "there"},
        ]}],
        "volumes": [
            {},
            {"name": "conf", "configMap": {"name": "conf"}},
            {"name": "hush", "secret": {"secretName": "hush"}},
            {"name": "all", "projected": {"sources": [
                {"configMap": {"name": "conf"}},
                {"secret": {"name": "hush", "items": [{"key": "word", "path": "secret/word"}]}},
                {"downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
                {"serviceAccountToken": {"path": "token", "audience": "tuist-runners-dispatch", "expirationSeconds": 600}},
            ]}},
            {"name": "host", "hostPath": {"path": host, "type": "Directory"}},
            {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}},
            {"name": "fixed", "persistentVolumeClaim": {"claimName": "disk", "readOnly": true}},
        ],
    }});
    mac.run("job", script, more).await?;
    let (_, exit) = mac.until_ended("job").await?;
    ensure!(exit.exit_code == 0, "{exit:?} {}", mac.host.log());
    mac.delete_all(&["job"]).await?;
    for folder in [&host, &disk] {
        ensure!(std::fs::read_to_string(folder.join("from-guest"))? == "guest\n");
        ensure!(
            folder.join("there").exists(),
            "what belongs to the host went with the Pod"
        );
    }
    ensure!(!disk.join("no").exists());

    // What no VM can have is said, and the Pod waits for somebody to put it right.
    claim(&mac, "far", json!({"nfs": {"path": "/", "server": "192.0.2.1"}})).await?;
    let far = json!({"spec": {"volumes": [{}, {"name": "far", "persistentVolumeClaim": {"claimName": "far"}}]}});
    mac.run("far", "true", far).await?;
    let key = json!({"spec": {"volumes": [{}, {"name": "key", "hostPath": {"path": mac.host.path("state")}}]}});
    mac.run("thief", "true", key).await?;
    until_told(&mac, "far", "FailedMount", "which a Mac cannot attach").await?;
    until_told(&mac, "thief", "FailedMount", "holds what the node keeps for itself").await?;
    mac.stayed_within_its_rights()
}

/// Images of runners start by themselves: no script of ours runs in them, so nothing is put where the Pod mounts it. They find
/// their environment and the token for dispatch beside each other, and leave their exit code.
pub(crate) async fn an_image_that_brings_its_own_program_finds_its_environment_and_its_token() -> Result<()> {
    let (mac, _agent) = Mac::started("feats8").await?;
    let boot = r"
        cd '/Volumes/My Shared Files' || exit
        grep -q '^POOL=warm$' env/tuist.env || echo 11 >status/runner-rc
        cut -d. -f2 env/sa_token | tr '_-' '/+' | base64 -d 2>/dev/null | grep -q tuist-runners-dispatch || echo 12 >status/runner-rc
        until [ -s status/runner-rc ] || [ -e v-work/go ]; do sleep 0.1; done
        echo 'the job has failed' >status/runner.log
        [ -s status/runner-rc ] || echo 5 >status/runner-rc
        shutdown -h now
    ";
    let boot = boot.to_owned();
    mac.control.push(
        "ghcr.io/acme/runner:v1",
        &Image {
            boot,
            ..Image::default()
        },
    )?;
    let more = json!({"spec": {
        "containers": [{
            "image": "ghcr.io/acme/runner:v1", "command": null,
            "env": [{"name": "POOL", "value": "warm"}],
            "terminationMessagePolicy": "FallbackToLogsOnError",
            "volumeMounts": [{}, {"name": "dispatch", "mountPath": "/var/run/dispatch"}],
        }],
        "volumes": [{}, {"name": "dispatch", "projected": {"sources": [
            {"serviceAccountToken": {"path": "token", "audience": "tuist-runners-dispatch", "expirationSeconds": 600}},
        ]}}],
    }});
    let pod = mac.run("runner", "", more).await?;
    mac.until_running("runner").await?;
    let room = mac.host.path("state/pods").join(pod.uid().unwrap_or_default());
    let token = std::fs::read_to_string(room.join("containers/main/0/env/sa_token"))?;
    mac.go(&pod)?;
    let (_, exit) = mac.until_ended("runner").await?;
    ensure!(exit.exit_code == 5, "{exit:?}");
    let said = exit.message.as_deref().unwrap_or_default();
    ensure!(said.trim_end() == "the job has failed", "{exit:?}");
    mac.delete_all(&["runner"]).await?;
    let leaks = mac.leaks(&token);
    ensure!(leaks.is_empty(), "a token was left in {leaks:?}");
    mac.stayed_within_its_rights()
}

/// A claim that is bound to a volume of this kind.
async fn claim(mac: &Mac, name: &str, source: Value) -> Result<()> {
    let volume = format!("{}-{name}", mac.namespace);
    let mut spec = json!({
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
        "persistentVolumeReclaimPolicy": "Retain",
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [mac.host.node]},
        ]}]}},
    });
    let Value::Object(source) = source else {
        anyhow::bail!("no source of a volume: {source}");
    };
    spec.as_object_mut().context("an object")?.extend(source);
    let volumes: Api<PersistentVolume> = Api::all(mac.host.client.clone());
    let object = json!({"metadata": {"name": volume}, "spec": spec});
    volumes
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    let wanted = json!({"metadata": {"name": name}, "spec": {
        "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": volume,
        "resources": {"requests": {"storage": "1Gi"}},
    }});
    let made: PersistentVolumeClaim = mac.make(wanted).await?;
    let claims: Api<PersistentVolumeClaim> = mac.all();
    // Where no controller binds, this does.
    let owner = json!({"spec": {"claimRef": {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": mac.namespace, "name": name, "uid": made.uid(),
    }}});
    volumes
        .patch(&volume, &PatchParams::default(), &Patch::Merge(owner))
        .await?;
    let bound = json!({"status": {"phase": "Bound"}});
    claims
        .patch_status(name, &PatchParams::default(), &Patch::Merge(bound))
        .await?;
    Ok(())
}

/// A guest may put anything into a folder that it can write to: links to files of the host, pipes that never end, folders where a
/// file should be. None of it may be followed, waited for or overwritten by the host, and its Pod goes on.
pub(crate) async fn what_a_guest_plants_leads_its_host_nowhere() -> Result<()> {
    let (mac, _agent) = Mac::started("feats4").await?;
    mac.make::<ConfigMap>(json!({"metadata": {"name": "conf"}, "data": {"key": "old"}}))
        .await?;
    let treasure = mac.host.path("treasure");
    std::fs::create_dir(&treasure)?;
    std::fs::write(treasure.join("key"), "of the host")?;
    let target = treasure.display();
    let script = format!(
        r#"
        s='/Volumes/My Shared Files'
        if [ -e /opt/work/planted ]; then
            echo again >>/opt/work/runs
            until [ -e /opt/work/go ]; do cp /etc/conf/key /opt/work/.k; mv -T /opt/work/.k /opt/work/seen; sleep 0.1; done
            exit 0
        fi
        for d in /opt/work "$s/status"; do
            ln -sfn {target} "$d/..data"; mkfifo "$d/..data_tmp"; mkdir "$d/..1763262000.0"
            ln -sfn {target}/key "$d/key"
        done
        rm -f "$s/status/termination-log"; ln -s {target}/key "$s/status/termination-log"
        rm -f "$s/status/runner-rc"; mkfifo "$s/status/runner-rc"
        ln -sfn {target} "$s/v-conf/..data" 2>/dev/null && exit 21
        rm -rf "$s/v-conf/key" 2>/dev/null
        [ "$(cat /etc/conf/key)" = old ] || exit 22
        echo mine >/opt/work/planted
        exit 9
        "#
    );
    let more = json!({"spec": {
        "restartPolicy": "OnFailure",
        "containers": [{"volumeMounts": [{}, {"name": "conf", "mountPath": "/etc/conf"}]}],
        "volumes": [{"emptyDir": {"sizeLimit": "100Mi"}}, {"name": "conf", "configMap": {"name": "conf"}}],
    }});
    let pod = mac.run("job", &script, more).await?;
    let again = |pod: &Pod| restarts(pod) == Some(1) && is(pod, "Ready");
    let last = ended_before(&mac.until("job", "a second start", again).await?).context("the end before")?;
    ensure!(last.exit_code == 9, "{last:?}");
    ensure!(
        !last.message.unwrap_or_default().contains("of the host"),
        "a file of the host was read for the guest"
    );
    // What it was given still follows its object, in the right place.
    mac.change::<ConfigMap>("conf", json!({"data": {"key": "new"}})).await?;
    mac.until_work(&pod, "seen", |said| said == "new").await?;
    mac.go(&pod)?;
    let (ended, exit) = mac.until_ended("job").await?;
    ensure!(phase(&ended) == "Succeeded", "{exit:?}");
    mac.delete_all(&["job"]).await?;
    let left: Vec<_> = std::fs::read_dir(&treasure)?
        .flatten()
        .map(|entry| entry.file_name())
        .collect();
    ensure!(left == ["key"], "{left:?}");
    ensure!(std::fs::read_to_string(treasure.join("key"))? == "of the host");
    Ok(())
}

pub(crate) async fn a_restricted_namespace_runs_pods_and_what_cannot_be_kept_is_refused() -> Result<()> {
    let (mac, _agent) = Mac::started("feats5").await?;
    let namespaces: Api<Namespace> = Api::all(mac.host.client.clone());
    let enforced = json!({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}});
    namespaces
        .patch(&mac.namespace, &PatchParams::default(), &Patch::Merge(enforced))
        .await?;
    let restricted = json!({"spec": {
        "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}, "fsGroup": 20},
        "containers": [{"securityContext": {
            "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}, "readOnlyRootFilesystem": true,
        }}],
    }});
    mac.run("job", "exit 0", restricted.clone()).await?;
    let (pod, _) = mac.until_ended("job").await?;
    ensure!(phase(&pod) == "Succeeded");
    // The API server refuses what the namespace forbids, before a node hears of it.
    let Err(refused) = mac.run("open", "true", json!({})).await else {
        anyhow::bail!("a Pod without any promise was let into a restricted namespace");
    };
    ensure!(format!("{refused:#}").contains("restricted"), "{refused:#}");
    // What a VM would silently not do is refused by the node.
    let mut other = restricted;
    other["spec"]["securityContext"]["runAsUser"] = json!(501);
    mac.run("other", "true", other).await?;
    let refused = mac.until_failed("other").await?;
    let status = refused.status.context("a status")?;
    ensure!(status.reason.as_deref() == Some("UnsupportedByVM"), "{status:?}");
    ensure!(status.message.is_some_and(|message| message.contains("runAsUser")));
    Ok(())
}

pub(crate) async fn a_container_has_the_hardware_it_asked_for_and_its_hooks_run() -> Result<()> {
    let (mac, _agent) = Mac::started("feats6").await?;
    let say = |word: &str| json!({"exec": {"command": ["sh", "-c", format!("echo {word} >>/opt/work/said")]}});
    let script = "trap 'echo term >>/opt/work/said; cat /opt/work/said >/dev/termination-log; exit 0' TERM; while :; do sleep 0.1; done";
    let with = |resources: Value| {
        json!({
            "metadata": {"finalizers": ["test.russet.dev/look"]},
            "spec": {"containers": [{
                "resources": resources,
                "lifecycle": {"postStart": say("hello"), "preStop": say("bye")},
            }]},
        })
    };
    // More than the Mac has is refused in words.
    mac.run("greedy", script, with(json!({"requests": {"cpu": "100"}})))
        .await?;
    let refused = mac.until_failed("greedy").await?;
    ensure!(refused.status.and_then(|status| status.reason).as_deref() == Some("OutOfcpu"));
    let limits = json!({"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "5", "memory": "6Gi"}});
    let limited = mac.run("limited", script, with(limits)).await?;
    mac.run(
        "requested",
        script,
        with(json!({"requests": {"cpu": "6", "memory": "5Gi"}})),
    )
    .await?;
    for name in ["limited", "requested"] {
        mac.until_running(name).await?;
    }
    let hardware = |pod: &str| -> Result<(u64, u64)> {
        let vms = mac.vms();
        let vm = vms.iter().find(|vm| vm.contains(&format!("_{pod}_"))).context("a VM")?;
        let config = std::fs::read(mac.control.home().join("vms").join(vm).join("config.json"))?;
        let config: Value = serde_json::from_slice(&config)?;
        let number = |key: &str| config[key].as_u64().context("a number");
        Ok((number("cpuCount")?, number("memorySize")? >> 20))
    };
    ensure!(hardware("limited")? == (5, 6144), "{:?}", hardware("limited")?);
    ensure!(hardware("requested")? == (6, 5120), "{:?}", hardware("requested")?);
    mac.until_work(&limited, "said", |said| said == "hello\n").await?;
    mac.delete("limited").await?;
    let (_, exit) = mac.until_ended("limited").await?;
    ensure!(exit.message.as_deref() == Some("hello\nbye\nterm\n"), "{exit:?}");
    Ok(())
}

pub(crate) async fn a_port_of_the_node_leads_to_a_container() -> Result<()> {
    let (mac, _agent) = Mac::started("feats7").await?;
    let taken = tokio::net::TcpListener::bind("127.77.9.9:28080").await?;
    let script = r#"exec python3 -c '
import os, socket
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((os.environ["GUEST_ADDRESS"], 8080)); s.listen()
while True:
    c, _ = s.accept(); c.sendall(b"hello " + c.recv(100)); c.close()
'"#;
    let port =
        |number: u16| json!({"spec": {"containers": [{"ports": [{"containerPort": 8080, "hostPort": number}]}]}});
    mac.run("job", script, port(28080)).await?;
    until_told(
        &mac,
        "job",
        "HostPortConflict",
        "127.77.9.9:28080 of this node cannot be opened",
    )
    .await?;
    // Another Pod that wants it is not even taken on.
    mac.run("rival", &format!("{WAITS} 0"), port(28080)).await?;
    let refused = mac.until_failed("rival").await?;
    ensure!(refused.status.and_then(|status| status.reason).as_deref() == Some("NodePorts"));
    drop(taken);
    let asked = async || {
        let mut stream = tokio::net::TcpStream::connect("127.77.9.9:28080").await?;
        stream.write_all(b"you").await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        anyhow::Ok(answer)
    };
    let answer = mac
        .host
        .until("an answer through the port", asked, |answer| answer == "hello you");
    answer.await.map(drop)
}
