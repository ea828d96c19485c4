//! launchd, code signing and the screen session.

use crate::harness::{Client, World, encoded, shell, until};

/// A daemon that writes a line and sleeps; the binary is a copy of sleep, so that there is something to sign.
fn plist(label: &str, arguments: &[&str], more: &str) -> String {
    let arguments = format!("<string>{}</string>", arguments.join("</string><string>"));
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<plist version=\"1.0\"><dict><key>Label</key><string>{label}</string>\
         <key>ProgramArguments</key><array>{arguments}</array>{more}</dict></plist>\n"
    )
}

const LABEL: &str = "dev.russet.test";
const PATH: &str = "/Library/LaunchDaemons/dev.russet.test.plist";
const KEEP: &str = "<key>KeepAlive</key><true/><key>RunAtLoad</key><true/>";

async fn ready() -> (World, Client) {
    let world = World::with(1).await;
    let client = ready_in(&world).await;
    (world, client)
}

async fn ready_in(world: &World) -> Client {
    let client = world.login().await;
    client.free_sudo(&world.host(1)).await;
    client.ok("sudo mkdir -p /usr/local/bin && sudo cp /bin/sleep /usr/local/bin/agent && sudo chmod 755 /usr/local/bin/agent").await;
    client
}

async fn install(client: &Client, text: &str) {
    let command = format!("sudo tee {PATH} >/dev/null && sudo chmod 644 {PATH}");
    client.put(&command, text).await;
}

async fn started(client: &Client, more: &str) {
    install(client, &plist(LABEL, &["/usr/local/bin/agent", "100000"], more)).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until("the job runs", || async { pid(client).await.is_some() }).await;
}

/// Tries until the label is free.
async fn until_bootstrapped(client: &Client) {
    let command = format!("sudo launchctl bootstrap system {PATH}");
    until("it can be bootstrapped", || async {
        client.run(&command).await.code == Some(0)
    })
    .await;
}

async fn print(client: &Client) -> String {
    client.run(&format!("launchctl print system/{LABEL}")).await.out
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines()
        .filter_map(|line| line.trim().split_once(" = "))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

/// Waits until `launchctl print` says this of the job.
async fn until_field(client: &Client, name: &str, value: &str) {
    until("the job is as expected", || async {
        field(&print(client).await, name) == Some(value)
    })
    .await;
}

async fn pid(client: &Client) -> Option<u32> {
    field(&print(client).await, "pid")?.parse().ok()
}

#[tokio::test]
async fn a_daemon_is_bootstrapped_killed_and_comes_back_with_another_pid() {
    let (world, client) = ready().await;
    started(&client, KEEP).await;
    let first = pid(&client).await.unwrap();
    shell!(client,
        format!("ps -o comm= -p {first}") => Out("agent\n"),
        "pgrep -x agent" => Out(&format!("{first}\n")),
        format!("sudo kill -9 {first}") => Done,
    );
    until("launchd starts it again", || async {
        pid(&client).await.is_some_and(|pid| pid != first)
    })
    .await;
    let text = print(&client).await;
    assert_eq!(field(&text, "runs"), Some("2"), "{text}");
    assert_eq!(field(&text, "last terminating signal"), Some("Killed: 9"), "{text}");
    assert_eq!(
        field(&text, "properties"),
        Some("keepalive | runatload | inferred program | system service"),
        "{text}"
    );
    assert_eq!(world.mac().await.unexpected(), [""; 0]);
}

#[tokio::test]
async fn a_job_that_ends_at_once_waits_for_its_throttle() {
    let world = World::made(1, |options| options.second = std::time::Duration::from_mins(1)).await;
    let client = ready_in(&world).await;
    install(&client, &plist(LABEL, &["/usr/local/bin/agent", "0"], KEEP)).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until_field(&client, "state", "spawn scheduled").await;
    let text = print(&client).await;
    assert_eq!(
        (field(&text, "runs"), field(&text, "last exit code")),
        (Some("1"), Some("0")),
        "{text}"
    );
}

#[tokio::test]
async fn bootout_is_not_over_when_it_returns_and_bootstrap_fails_until_it_is() {
    let world = World::made(1, |options| options.second = std::time::Duration::from_millis(400)).await;
    let client = ready_in(&world).await;
    started(&client, KEEP).await;
    let ran = client
        .run(&format!(
            "sudo launchctl bootout system/{LABEL}; echo $?; sudo launchctl bootstrap system {PATH}; echo $?"
        ))
        .await;
    assert_eq!(ran.out, "0\n5\n", "{ran:?}");
    assert_eq!(ran.err, "Bootstrap failed: 5: Input/output error\n");
    until_bootstrapped(&client).await;
    let twice = format!("{PATH}: service already bootstrapped\nBootstrap failed: 37: Operation already in progress\n");
    shell!(client,
        format!("sudo launchctl bootstrap system {PATH}") => Err(37, &twice),
        "sudo launchctl bootout system/nobody" => Err(3, "Boot-out failed: 3: No such process\n"),
    );
}

#[tokio::test]
async fn an_unknown_service_and_a_bad_target_have_the_words_of_launchctl() {
    let (_world, client) = World::and_client().await;
    shell!(client,
        "launchctl print system/nobody" => Err(113, "Bad request.\nCould not find service \"nobody\" in domain for system\n"),
        "launchctl print nobody" => Begins(64, "Unrecognized target specifier."),
        "launchctl kickstart -k system/nobody" => Err(113, "Could not find service \"nobody\" in domain for system\n"),
        "launchctl error 125" => Out("125: Domain does not support specified action\n"),
        "launchctl managername" => Out("Background\n"),
    );
}

#[tokio::test]
async fn kickstart_restarts_in_place_and_registers_nothing() {
    let (world, client) = ready().await;
    started(&client, KEEP).await;
    for _ in 0..3 {
        let before = pid(&client).await.unwrap();
        let after = client.ok(&format!("sudo launchctl kickstart -kp system/{LABEL}")).await;
        assert_ne!(after.trim().parse::<u32>().unwrap(), before);
    }
    assert_eq!(world.mac().await.btm_churn(), 0);
    shell!(client, format!("sudo launchctl kickstart system/{LABEL}") => Ends(37));
}

#[tokio::test]
async fn a_kickstart_can_do_nothing_and_say_so_to_nobody() {
    let (world, client) = ready().await;
    started(&client, KEEP).await;
    let mac = world.mac().await;
    mac.set_faults(|faults| faults.kickstart_does_nothing = true);
    let before = pid(&client).await;
    client.ok(&format!("sudo launchctl kickstart -k system/{LABEL}")).await;
    assert_eq!(pid(&client).await, before);
}

#[tokio::test]
async fn a_crash_loop_shows_a_fresh_pid_each_time() {
    let (world, client) = ready().await;
    world.mac().await.set_faults(|faults| faults.crash_loop_after = Some(2));
    install(&client, &plist(LABEL, &["/usr/local/bin/agent", "100000"], KEEP)).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until("it was started three times", || async {
        field(&print(&client).await, "runs").is_some_and(|runs| runs.parse::<u32>().unwrap() >= 3)
    })
    .await;
    let text = print(&client).await;
    assert_eq!(field(&text, "last exit reason"), Some("OS_REASON_CODESIGNING"));
    assert!(world.mac().await.code_kills() >= 2);
}

/// A binary that is overwritten in place while it runs is killed for ever after; renaming another over it, or signing it anew, heals.
#[tokio::test]
async fn overwriting_a_running_binary_in_place_poisons_it_and_a_new_inode_heals() {
    let (_world, client) = ready().await;
    started(&client, KEEP).await;
    client
        .ok("sudo cp /bin/sleep /tmp/new && echo >> /tmp/x; sudo sh -c 'cat /tmp/new > /usr/local/bin/agent'")
        .await;
    client.run(&format!("sudo launchctl kickstart -k system/{LABEL}")).await;
    until_field(&client, "last exit reason", "OS_REASON_CODESIGNING").await;
    let found = client.run("codesign -v /usr/local/bin/agent").await.code;
    assert_eq!(found, Some(0), "it looks fine all the same");
    shell!(client,
        "sudo codesign --force --sign - /usr/local/bin/agent" => Err(0, "/usr/local/bin/agent: replacing existing signature\n"),
    );
    until("it lives", || async {
        client.run(&format!("sudo launchctl kickstart system/{LABEL}")).await;
        pid(&client).await.is_some()
    })
    .await;
}

#[tokio::test]
async fn a_binary_that_is_renamed_into_place_and_signed_lives() {
    let (_world, client) = ready().await;
    started(&client, KEEP).await;
    for _ in 0..5 {
        let before = pid(&client).await.unwrap();
        shell!(client,
            format!("sudo cp /bin/sleep /usr/local/bin/agent.new && sudo chmod 755 /usr/local/bin/agent.new && \
                 sudo codesign --force --sign - /usr/local/bin/agent.new 2>/dev/null && \
                 sudo mv /usr/local/bin/agent.new /usr/local/bin/agent && sudo launchctl kickstart -k system/{LABEL}") => Done,
        );
        assert!(pid(&client).await.is_some_and(|pid| pid != before));
    }
}

#[tokio::test]
async fn an_unsigned_binary_is_killed() {
    let (_world, client) = ready().await;
    shell!(client,
        "sudo codesign --remove-signature /usr/local/bin/agent" => Done,
        "codesign -dv /usr/local/bin/agent" => Err(1, "/usr/local/bin/agent: code object is not signed at all\n"),
    );
    let once = plist(LABEL, &["/usr/local/bin/agent", "1"], "<key>RunAtLoad</key><true/>");
    install(&client, &once).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until_field(&client, "last exit reason", "OS_REASON_CODESIGNING").await;
}

#[tokio::test]
async fn a_launchd_that_pins_the_code_hash_kills_a_new_binary_until_it_is_bootstrapped_again() {
    let world = World::with(1).await;
    world.mac().await.set_quirks(|quirks| quirks.pins_cdhash = true);
    let client = ready_in(&world).await;
    started(&client, KEEP).await;
    let roll = "sudo cp /usr/bin/env /usr/local/bin/agent.new; sudo sh -c 'cat /bin/sleep > /usr/local/bin/agent.new'; \
                sudo chmod 755 /usr/local/bin/agent.new; sudo codesign -f -s - -i other /usr/local/bin/agent.new 2>/dev/null; \
                sudo mv /usr/local/bin/agent.new /usr/local/bin/agent";
    client.ok(roll).await;
    client.run(&format!("sudo launchctl kickstart -k system/{LABEL}")).await;
    until("it is killed", || async {
        let text = print(&client).await;
        field(&text, "properties").is_some_and(|words| words.contains("needs LWCR update"))
    })
    .await;
    client.ok(&format!("sudo launchctl bootout system/{LABEL}")).await;
    until_bootstrapped(&client).await;
    until("it runs", || async { pid(&client).await.is_some() }).await;
}

#[tokio::test]
async fn a_missing_program_is_78_and_lands_in_the_penalty_box() {
    let (_world, client) = ready().await;
    install(&client, &plist(LABEL, &["/usr/local/bin/nobody"], KEEP)).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until("it is put aside", || async {
        let text = print(&client).await;
        field(&text, "last exit code") == Some("78: EX_CONFIG")
            && field(&text, "properties").is_some_and(|words| words.contains("penalty box"))
    })
    .await;
}

#[tokio::test]
async fn a_property_list_that_others_can_write_is_refused() {
    let (_world, client) = ready().await;
    install(&client, &plist(LABEL, &["/usr/local/bin/agent", "1"], "")).await;
    client.ok(&format!("sudo chmod 666 {PATH}")).await;
    let ran = client.run(&format!("sudo launchctl bootstrap system {PATH}")).await;
    assert_eq!(ran.code, Some(122), "{ran:?}");
    shell!(client,
        format!("launchctl bootstrap system {PATH}") => Err(5, "Bootstrap failed: 5: Input/output error\nTry re-running the command as root for richer errors.\n"),
    );
}

#[tokio::test]
async fn a_disabled_label_does_not_load_and_stays_disabled_over_a_reboot() {
    let (world, client) = ready().await;
    install(&client, &plist(LABEL, &["/usr/local/bin/agent", "100000"], KEEP)).await;
    shell!(client,
        format!("sudo launchctl disable system/{LABEL}") => Done,
        format!("sudo launchctl bootstrap system {PATH}") => Ends(119),
        "launchctl print-disabled system" => Shows(&format!("\"{LABEL}\" => disabled")),
    );
    let mac = world.mac().await;
    mac.reboot().await;
    let client = world.login().await;
    shell!(client,
        format!("launchctl print system/{LABEL}") => Ends(113),
        format!("sudo launchctl enable system/{LABEL}") => Done,
        format!("sudo launchctl bootstrap system {PATH}") => Done,
    );
}

#[tokio::test]
async fn daemons_come_back_after_a_reboot() {
    let (world, client) = ready().await;
    started(&client, KEEP).await;
    let mac = world.mac().await;
    mac.reboot().await;
    until("launchd started it", || async { mac.daemon_pid(LABEL).is_some() }).await;
    assert_eq!(mac.btm_churn(), 0);
}

#[tokio::test]
async fn too_many_registrations_make_launchd_forget_keepalive() {
    let world = World::with(1).await;
    world.mac().await.set_quirks(|quirks| quirks.btm_cap = 3);
    let client = ready_in(&world).await;
    started(&client, KEEP).await;
    for _ in 0..3 {
        shell!(client,
            format!("sudo launchctl bootout --wait system/{LABEL} && sudo launchctl bootstrap system {PATH}") => Done,
        );
    }
    assert_eq!(world.mac().await.btm_churn(), 3);
    let log = client.ok("sudo cat /var/log/system.log").await;
    assert!(log.contains("Exceeded max notifications for dev.russet.test"), "{log}");
    until("it runs", || async { pid(&client).await.is_some() }).await;
    let last = pid(&client).await.unwrap();
    client.ok(&format!("sudo kill {last}")).await;
    until_field(&client, "state", "not running").await;
    shell!(client, "sudo sfltool dumpbtm" => Shows("Identifier: 16.dev.russet.test"));
}

#[tokio::test]
async fn a_daemon_of_the_user_cannot_write_to_a_log_in_a_folder_of_root() {
    let (_world, client) = ready().await;
    let user = "<key>UserName</key><string>m1</string><key>StandardOutPath</key><string>/var/log/deep/agent.log</string>\
                <key>RunAtLoad</key><true/>";
    install(&client, &plist(LABEL, &["/bin/echo", "hello"], user)).await;
    client.ok(&format!("sudo launchctl bootstrap system {PATH}")).await;
    until_field(&client, "last exit code", "78: EX_CONFIG").await;
    client.ok("sudo touch /var/log/deep/agent.log && sudo chown m1 /var/log/deep/agent.log && sudo chmod 755 /var/log/deep").await;
    client.run(&format!("sudo launchctl kickstart system/{LABEL}")).await;
    client
        .until_out("it writes", "cat /var/log/deep/agent.log", "hello\n")
        .await;
}

#[tokio::test]
async fn there_is_no_screen_session_before_loginwindow_could_log_in() {
    let world = World::with(1).await;
    let host = world.host(1);
    let client = ready_in(&world).await;
    shell!(client,
        "launchctl print gui/501" => Err(125, "Could not print domain: 125: Domain does not support specified action\n"),
        "launchctl print gui/777" => Ends(112),
        "sudo defaults write /Library/Preferences/com.apple.loginwindow autoLoginUser m1" => Done,
    );
    let keep = "sudo tee /etc/kcpassword >/dev/null; sudo chmod 600 /etc/kcpassword";
    client.put(keep, &encoded(&host.password)).await;
    shell!(client,
        "sudo launchctl kickstart -k system/com.apple.loginwindow" => Done,
        "launchctl print gui/501" => Shows("session = Aqua"),
        "stat -f %Su /dev/console" => Out("m1\n"),
    );
}

#[tokio::test]
async fn a_wrong_auto_login_password_is_sealed() {
    let (_world, client) = ready().await;
    client.sit_down("wrong").await;
    shell!(client, "launchctl print gui/501" => Ends(125));
    let sealed = client.ok("sudo base64 -i /etc/kcpassword").await;
    assert_eq!(sealed, "Qfo3Qr7ZudSjuR8=\n", "the encoded text <sealed>");
}

#[tokio::test]
async fn an_agent_belongs_to_the_screen_session_and_legacy_load_cannot_reach_it() {
    let (world, client) = ready().await;
    let agent = plist("actions.runner.x", &["/bin/sleep", "100000"], KEEP);
    let path = "/Users/m1/Library/LaunchAgents/actions.runner.x.plist";
    client
        .put(&format!("mkdir -p ~/Library/LaunchAgents && cat > {path}"), &agent)
        .await;
    shell!(client,
        format!("launchctl load -w {path}") => Begins(5, "Load failed: 5: Input/output error\n"),
        format!("launchctl bootstrap gui/501 {path}") => Ends(125),
        format!("sudo launchctl bootstrap user/501 {path}") => Ends(134),
    );
    client.sit_down(&world.host(1).password).await;
    let print = "launchctl print gui/501/actions.runner.x";
    until("the agent was loaded at login", || async {
        client.run(print).await.out.contains("state = running")
    })
    .await;
}
