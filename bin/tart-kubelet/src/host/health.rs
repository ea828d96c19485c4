//! Whether the host can do what a Node has to: run `tart`, draw on a screen, be reached.
//!
//! The heartbeat never asks any of that. It reads what was found last ([`Board`]); whoever asks takes as long as it needs beside
//! it, so a tool that hangs costs nobody the Node.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use russet_node::{Condition, Resident};
use russet_vm::{Error, Runtime};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::address::{self, AddressError};
use super::ask::{AskError, ask};
use super::pressure::Pressure;

/// How long `tart` may take to list what is there, on a host that is very busy.
const LIST: Duration = Duration::from_secs(30);
const PRINT: Duration = Duration::from_secs(10);
/// How often in a row an answer has to be bad before it is believed: one that comes late is no reason to take Pods away.
const BELIEVED: u32 = 2;
/// How long it counts that macOS refused a VM. Pods that wait for one try more often; once nobody tries any more, others may.
const REMEMBERED: Duration = Duration::from_mins(10);

/// What was found out about one thing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Found {
    /// Nothing yet.
    #[default]
    Unasked,
    /// Nobody has to know.
    Irrelevant,
    /// All is well.
    Well,
    /// What is wrong, in a sentence.
    Trouble(String),
}

impl Found {
    fn trouble(&self) -> Option<&str> {
        match self {
            Self::Trouble(why) => Some(why),
            Self::Unasked | Self::Irrelevant | Self::Well => None,
        }
    }
}

/// What was found out about the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) tart: Found,
    pub(crate) screen: Found,
    pub(crate) tailnet: Found,
}

impl Health {
    /// Whether Pods can be run, and otherwise why not.
    pub(crate) fn ready(&self) -> Condition {
        let all = [&self.tart, &self.screen, &self.tailnet];
        let troubles: Vec<&str> = all.into_iter().filter_map(Found::trouble).collect();
        if !troubles.is_empty() {
            return Condition::ready(false, troubles.join("; "));
        }
        if all.contains(&&Found::Unasked) {
            return Condition::ready(false, "this host has not been looked at yet").assumed();
        }
        Condition::ready(true, "tart-kubelet is running")
    }

    /// Each thing by itself, so that people see which.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let told = |kind, found: &Found, reasons: (&'static str, &'static str), well: &'static str| match found {
            Found::Irrelevant => None,
            Found::Unasked => Some(Condition::own(kind, false, "NotAskedYet", "this was not looked at yet").assumed()),
            Found::Well => Some(Condition::own(kind, true, reasons.0, well)),
            Found::Trouble(why) => Some(Condition::own(kind, false, reasons.1, why.clone())),
        };
        let tart = told(
            "TartReady",
            &self.tart,
            ("TartAnswers", "TartDoesNotAnswer"),
            "tart lists what is on this host",
        );
        let screen = told(
            "GUISession",
            &self.screen,
            ("AquaSession", "NoAquaSession"),
            "the agent's user is logged in on the screen",
        );
        let tailnet = told(
            "Tailnet",
            &self.tailnet,
            ("TailnetUp", "TailnetDown"),
            "the host is on the tailnet",
        );
        [tart, screen, tailnet].into_iter().flatten().collect()
    }
}

/// macOS would not start another VM although few enough run. Its kernel loses count of some that end (tart #1217) and finds it again
/// with a reboot; or somebody runs VMs that `tart` does not know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LostCount {
    /// So many ran when it refused.
    pub(crate) running: usize,
    /// So many should.
    pub(crate) limit: usize,
}

impl std::fmt::Display for LostCount {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { running, limit } = self;
        write!(
            f,
            "macOS refuses another virtual machine although {running} of {limit} run: it has lost count of one that ended, or a program other \
             than tart runs some; if there is none, reboot the host"
        )
    }
}

/// What was found last, for the heartbeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct Board {
    notes: Arc<Mutex<Notes>>,
    deleted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Notes {
    health: Health,
    resident: Option<Resident>,
    pressed: Option<bool>,
    pressure: Pressure,
    refused: Option<Refused>,
}

#[derive(Debug)]
struct Refused {
    lost: LostCount,
    at: Instant,
    times: u32,
}

impl Board {
    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The Node is not there any more. Heard once, also by one who listens later.
    pub(crate) fn set_deleted(&self) {
        self.deleted.notify_one();
    }

    /// Ends when the Node is not there any more.
    pub(crate) async fn deleted(&self) {
        self.deleted.notified().await;
    }

    pub(crate) fn health(&self) -> Health {
        self.notes().health.clone()
    }

    pub(crate) fn set_health(&self, health: Health) {
        self.notes().health = health;
    }

    /// Whether all is well, with what is wrong if macOS starts nothing at all.
    pub(crate) fn ready(&self) -> Condition {
        let ready = self.health().ready();
        let notes = self.notes();
        match notes.refused() {
            // One more look: a VM that just ended may be counted for a moment.
            Some(refused) if ready.holds && refused.lost.running == 0 && refused.times >= BELIEVED => {
                Condition::ready(false, refused.lost.to_string())
            }
            _ => ready,
        }
    }

    /// Each thing by itself.
    pub(crate) fn conditions(&self) -> Vec<Condition> {
        let places = match self.lost_count() {
            None => (
                true,
                "AsManyAsAllowed",
                "macOS starts as many virtual machines as it should".to_owned(),
            ),
            Some(lost) => (false, "CountLost", lost.to_string()),
        };
        let places = Condition::own("VMPlaces", places.0, places.1, places.2);
        let mut all = self.health().conditions();
        all.push(places);
        all
    }

    /// That macOS refused a VM, if that was not long ago.
    pub(crate) fn lost_count(&self) -> Option<LostCount> {
        self.notes().refused().map(|refused| refused.lost)
    }

    /// It refused one, or has started more than it would before.
    pub(crate) fn set_lost_count(&self, lost: Option<LostCount>) {
        let mut notes = self.notes();
        let times = notes.refused().map_or(0, |refused| refused.times);
        notes.refused = lost.map(|lost| Refused {
            lost,
            at: Instant::now(),
            times: times + 1,
        });
    }

    /// The images that are there; none before somebody looked.
    pub(crate) fn resident(&self) -> Option<Resident> {
        self.notes().resident.clone()
    }

    pub(crate) fn set_resident(&self, resident: Resident) {
        self.notes().resident = Some(resident);
    }

    /// Whether the disk is nearly full although all was done about it; none before somebody looked.
    pub(crate) fn is_pressed(&self) -> Option<bool> {
        self.notes().pressed
    }

    pub(crate) fn set_pressed(&self, pressed: bool) {
        self.notes().pressed = Some(pressed);
    }

    /// How short memory and processes are.
    pub(crate) fn pressure(&self) -> Pressure {
        self.notes().pressure
    }

    pub(crate) fn set_pressure(&self, pressure: Pressure) {
        self.notes().pressure = pressure;
    }
}

impl Notes {
    fn refused(&self) -> Option<&Refused> {
        self.refused
            .as_ref()
            .filter(|refused| refused.at.elapsed() < REMEMBERED)
    }
}

/// Asks the host.
#[derive(Debug)]
pub(crate) struct Examiner {
    pub(crate) runtime: Arc<dyn Runtime>,
    /// `launchctl`, where there are screens.
    pub(crate) launchctl: Option<PathBuf>,
    /// `tailscale` and the address the agent answers on, if that is of the tailnet.
    pub(crate) tailnet: Option<(PathBuf, IpAddr)>,
    bad: Bad,
    /// How often in a row `tailscale` named another address.
    elsewhere: u32,
}

/// The host has another address on the tailnet. The agent listens on the old one, and its certificate is for that, so it cannot stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the host's address on the tailnet is now {now} and was {was}; the agent ends, and the next one takes the new address"
)]
pub struct Moved {
    /// Where the agent answers.
    pub was: IpAddr,
    /// Where it should.
    pub now: IpAddr,
}

/// How often in a row each answer was bad.
#[derive(Debug, Default)]
struct Bad {
    tart: u32,
    screen: u32,
    tailnet: u32,
}

impl Examiner {
    pub(crate) fn new(
        runtime: Arc<dyn Runtime>,
        launchctl: Option<PathBuf>,
        tailnet: Option<(PathBuf, IpAddr)>,
    ) -> Self {
        Self {
            runtime,
            launchctl,
            tailnet,
            bad: Bad::default(),
            elsewhere: 0,
        }
    }

    /// Asks everything at once. A host that has moved is no longer the one that this agent can speak for.
    pub(crate) async fn look(&mut self, before: &Health) -> Result<Health, Moved> {
        let (launchctl, tailnet) = (self.launchctl.clone(), self.tailnet.clone());
        let (tart, screen, tailnet) = tokio::join!(
            tart(self.runtime.as_ref()),
            async {
                match &launchctl {
                    Some(program) => Some(screen(program).await),
                    None => None,
                }
            },
            async {
                match &tailnet {
                    Some((program, address)) => Some(on_tailnet(program, *address).await),
                    None => None,
                }
            },
        );
        if let Some(moved) = believe(&mut self.elsewhere, tailnet.as_ref()) {
            return Err(moved);
        }
        Ok(Health {
            tart: judge(&mut self.bad.tart, Some(tart), &before.tart),
            screen: judge(&mut self.bad.screen, screen, &before.screen),
            tailnet: judge(
                &mut self.bad.tailnet,
                tailnet.map(|answer| answer.map_err(Complaint::from)),
                &before.tailnet,
            ),
        })
    }
}

/// Why the address of the host is not the one that the agent answers on.
#[derive(Debug)]
enum Astray {
    /// It has another one.
    Moved(Moved),
    /// Nobody can say that it has one.
    Away(AddressError),
}

impl From<Astray> for Complaint {
    fn from(astray: Astray) -> Self {
        match astray {
            Astray::Moved(moved) => Self {
                why: moved.to_string(),
                sure: true,
            },
            Astray::Away(error) => Self {
                why: format!("the host is not on the tailnet: {error}"),
                sure: false,
            },
        }
    }
}

/// Whether the host has moved for good. One that is away may come back to where it was, so that says nothing.
fn believe(elsewhere: &mut u32, answer: Option<&Result<(), Astray>>) -> Option<Moved> {
    let Some(Err(Astray::Moved(moved))) = answer else {
        *elsewhere = 0;
        return None;
    };
    *elsewhere = elsewhere.saturating_add(1);
    (*elsewhere >= BELIEVED).then_some(*moved)
}

/// An answer that is bad.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    why: String,
    /// It will be the same a moment later.
    sure: bool,
}

fn judge(bad: &mut u32, answer: Option<Result<(), Complaint>>, before: &Found) -> Found {
    match answer {
        None => Found::Irrelevant,
        Some(Ok(())) => {
            *bad = 0;
            Found::Well
        }
        Some(Err(complaint)) => {
            *bad = bad.saturating_add(1);
            if complaint.sure || *bad >= BELIEVED {
                Found::Trouble(complaint.why)
            } else {
                before.clone()
            }
        }
    }
}

async fn tart(runtime: &dyn Runtime) -> Result<(), Complaint> {
    match timeout(LIST, runtime.list()).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Complaint {
            why: format!("virtual machines cannot be run: {error}"),
            sure: matches!(error, Error::Program { .. }),
        }),
        Err(_) => Err(Complaint {
            why: format!(
                "virtual machines cannot be run: tart did not answer within {} s",
                LIST.as_secs()
            ),
            sure: false,
        }),
    }
}

/// macOS makes the key of a VM only for a user who is logged in on the screen.
async fn screen(launchctl: &Path) -> Result<(), Complaint> {
    let domain = format!("gui/{}", rustix::process::getuid().as_raw());
    let none = "nobody is logged in on the host's screen as the agent's user, so macOS starts no virtual machine";
    match ask(launchctl, &["print", &domain], PRINT).await {
        Ok(said) if said.contains("session = Aqua") => Ok(()),
        Ok(_) | Err(AskError::Failed { .. }) => Err(Complaint {
            why: none.to_owned(),
            sure: true,
        }),
        Err(error) => Err(Complaint {
            why: format!("nobody can say who is logged in on the host's screen: {error}"),
            sure: false,
        }),
    }
}

async fn on_tailnet(tailscale: &Path, address: IpAddr) -> Result<(), Astray> {
    match address::tailnet(tailscale).await {
        Ok(now) if now == address => Ok(()),
        Ok(now) => Err(Astray::Moved(Moved { was: address, now })),
        Err(error) => Err(Astray::Away(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaint(sure: bool) -> Result<(), Complaint> {
        Err(Complaint {
            why: "no".to_owned(),
            sure,
        })
    }

    #[test]
    fn one_late_answer_is_no_reason_to_take_pods_away_and_two_are() {
        let mut bad = 0;
        let first = judge(&mut bad, Some(complaint(false)), &Found::Well);
        assert_eq!(first, Found::Well);
        let second = judge(&mut bad, Some(complaint(false)), &first);
        assert_eq!(second, Found::Trouble("no".to_owned()));
        assert_eq!(judge(&mut bad, Some(Ok(())), &second), Found::Well);
        assert_eq!(judge(&mut bad, Some(complaint(false)), &Found::Well), Found::Well);
        assert_eq!(judge(&mut 0, Some(complaint(true)), &Found::Well), second);
    }

    /// A host that got another address on the tailnet was not Ready until a person restarted its agent, which listened on the old
    /// one.
    #[test]
    fn a_host_that_is_elsewhere_twice_in_a_row_has_moved_and_one_that_is_away_has_not() {
        let [was, now] = [[100, 64, 0, 7], [100, 64, 0, 8]].map(IpAddr::from);
        let moved = Moved { was, now };
        let elsewhere = Err(Astray::Moved(moved));
        let away = Err(Astray::Away(AddressError::NoAddress {
            program: "tailscale".into(),
            said: String::new(),
        }));
        let mut count = 0;
        for _ in 0..3 {
            assert_eq!(believe(&mut count, Some(&away)), None);
        }
        assert_eq!(believe(&mut count, Some(&elsewhere)), None);
        // It was a slip, or nobody can say: the row begins anew.
        for between in [Ok(()), away] {
            assert_eq!(believe(&mut count, Some(&between)), None);
            assert_eq!(believe(&mut count, Some(&elsewhere)), None);
        }
        assert_eq!(believe(&mut count, Some(&elsewhere)), Some(moved));
        assert_eq!(believe(&mut 1, None), None);
        // Until then the Node says it.
        let complaint = Complaint::from(Astray::Moved(moved));
        assert!(complaint.sure && complaint.why.contains("is now 100.64.0.8 and was 100.64.0.7"));
    }

    /// A host that starts no VM at all took every Pod that came, and told each that others run.
    #[tokio::test(start_paused = true)]
    async fn a_host_that_starts_nothing_at_all_is_not_ready_until_it_does_or_nobody_tries_any_more() {
        let board = Board::default();
        board.set_health(Health {
            tart: Found::Well,
            screen: Found::Irrelevant,
            tailnet: Found::Irrelevant,
        });
        let places = |board: &Board| board.conditions().last().is_some_and(|condition| condition.holds);
        let refused = |running| Some(LostCount { running, limit: 2 });
        board.set_lost_count(refused(1));
        board.set_lost_count(refused(1));
        assert!(board.ready().holds && !places(&board), "one place of two is left");
        board.set_lost_count(None);
        assert!(places(&board));
        board.set_lost_count(refused(0));
        assert!(board.ready().holds && !places(&board), "it may be over in a moment");
        board.set_lost_count(refused(0));
        assert!(!board.ready().holds);
        assert!(board.ready().message.contains("reboot the host"));
        tokio::time::advance(REMEMBERED).await;
        assert!(board.ready().holds && places(&board));
    }

    /// Ready was False until `tart` had answered, so that each restart of the agent took its Node away for a heartbeat. A Node that
    /// says something already goes on saying it until somebody looked.
    #[test]
    fn what_was_not_asked_yet_is_only_assumed() {
        let mut health = Health::default();
        assert!(health.ready().assumed);
        assert!(health.conditions().iter().all(|condition| condition.assumed));
        // One answer alone does not make a host fit.
        health.tart = Found::Well;
        health.tailnet = Found::Irrelevant;
        assert!(health.ready().assumed && !health.ready().holds);
        // What is wrong is wrong, whatever the others say later.
        health.tailnet = Found::Trouble("no tailnet".to_owned());
        assert!(!health.ready().assumed && !health.ready().holds);
        health.screen = Found::Well;
        health.tailnet = Found::Well;
        assert!(!health.ready().assumed && health.ready().holds);
    }

    #[test]
    fn a_node_is_ready_when_nothing_is_wrong_and_says_everything_that_is() {
        let mut health = Health {
            tart: Found::Well,
            screen: Found::Well,
            tailnet: Found::Irrelevant,
        };
        assert!(health.ready().holds);
        assert_eq!(health.conditions().len(), 2);
        health.screen = Found::Trouble("no screen".to_owned());
        health.tailnet = Found::Trouble("no tailnet".to_owned());
        let ready = health.ready();
        assert!(!ready.holds);
        assert_eq!(ready.message, "no screen; no tailnet");
        let found = health.conditions().iter().filter(|condition| condition.holds).count();
        assert_eq!(found, 1);
        assert!(!Health::default().ready().holds);
    }
}
