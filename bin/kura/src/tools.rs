//! Hits and misses per tool and per project.
//!
//! Recording takes no lock: projects get their column once, in a table that only grows, and counters are spread over lanes so
//! that threads seldom touch the same cache line. The table is bounded, because project names come from clients: when it is
//! full, further projects are counted together as `other`.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Projects with a column of their own.
const PROJECTS: usize = 64;
/// Columns: the projects, and the rest.
const COLUMNS: usize = PROJECTS + 1;
/// Copies of the counters.
const LANES: usize = 8;

/// A build tool, by the protocol it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tool {
    /// Xcode's compilation cache.
    Xcode,
    /// Modules, uploaded in parts.
    Module,
    /// Gradle.
    Gradle,
    /// Bazel by HTTP, and what speaks like it.
    Bazel,
    /// Anything that speaks the Remote Execution API.
    Reapi,
    /// Turborepo.
    Turborepo,
    /// Nx.
    Nx,
    /// Metro.
    Metro,
    /// ccache.
    Ccache,
    /// sccache.
    Sccache,
    /// Maven's build-cache extension.
    Maven,
    /// Go, through `kura cacheprog`.
    Go,
    /// Whoever uses the plain paths.
    Generic,
}

impl Tool {
    /// All tools, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Xcode,
        Self::Module,
        Self::Gradle,
        Self::Bazel,
        Self::Reapi,
        Self::Turborepo,
        Self::Nx,
        Self::Metro,
        Self::Ccache,
        Self::Sccache,
        Self::Maven,
        Self::Go,
        Self::Generic,
    ];

    /// The label of metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Xcode => "xcode",
            Self::Module => "module",
            Self::Gradle => "gradle",
            Self::Bazel => "bazel",
            Self::Reapi => "reapi",
            Self::Turborepo => "turborepo",
            Self::Nx => "nx",
            Self::Metro => "metro",
            Self::Ccache => "ccache",
            Self::Sccache => "sccache",
            Self::Maven => "maven",
            Self::Go => "go",
            Self::Generic => "generic",
        }
    }
}

/// What happened to a request of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Event {
    /// It was there; bytes are those that are sent at once. Of those that take a while, [`Tools::sent`] is told.
    Hit,
    /// It was not there.
    Miss,
    /// It is stored now; bytes are those received.
    Stored,
    /// It was stored already.
    Known,
    /// It was taken and dropped on purpose: nobody will read it, or it is larger than allowed.
    Dropped,
}

const EVENTS: [(Event, &str); 5] = [
    (Event::Hit, "hit"),
    (Event::Miss, "miss"),
    (Event::Stored, "stored"),
    (Event::Known, "known"),
    (Event::Dropped, "dropped"),
];

#[derive(Debug, Default)]
struct Cell {
    events: [AtomicU64; EVENTS.len()],
    sent: AtomicU64,
    received: AtomicU64,
}

#[derive(Debug)]
struct Lane(Box<[Cell]>);

/// The counters. One per process.
#[derive(Debug)]
pub struct Tools {
    projects: [OnceLock<Box<str>>; PROJECTS],
    lanes: [Lane; LANES],
    shed: [AtomicU64; Tool::ALL.len()],
}

impl Default for Tools {
    fn default() -> Self {
        Self {
            projects: [const { OnceLock::new() }; PROJECTS],
            lanes: std::array::from_fn(|_| Lane((0..Tool::ALL.len() * COLUMNS).map(|_| Cell::default()).collect())),
            shed: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

thread_local! {
    static LANE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % LANES
    };
}

/// The counters of a tool and a project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place(usize);

impl Tools {
    /// Where a tool's requests about a project are counted.
    pub fn place(&self, tool: Tool, namespace: &str) -> Place {
        Place(tool as usize * COLUMNS + self.column(namespace))
    }

    fn cell(&self, place: Place) -> Option<&Cell> {
        let lane = self.lanes.get(LANE.with(|lane| *lane))?;
        lane.0.get(place.0)
    }

    /// Bytes of a hit have left.
    pub fn sent(&self, place: Place, bytes: u64) {
        if let Some(cell) = self.cell(place) {
            cell.sent.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Counts one request: `namespace` is the project, empty for the account itself.
    pub fn record(&self, tool: Tool, namespace: &str, event: Event, bytes: u64) {
        let Some(cell) = self.cell(self.place(tool, namespace)) else {
            return;
        };
        if let Some(counter) = cell.events.get(event as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        match event {
            Event::Hit => cell.sent.fetch_add(bytes, Ordering::Relaxed),
            Event::Stored => cell.received.fetch_add(bytes, Ordering::Relaxed),
            _ => 0,
        };
    }

    /// Counts a read that was answered as a miss because the node could not serve it now.
    pub fn shed(&self, tool: Tool) {
        if let Some(counter) = self.shed.get(tool as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The column of a project: where its name hashes to, or the next free place.
    fn column(&self, namespace: &str) -> usize {
        // FNV-1a: names are short, and nothing but the spread depends on it.
        let hash = namespace.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let start = usize::try_from(hash % PROJECTS as u64).unwrap_or_default();
        for step in 0..PROJECTS {
            let column = (start + step) % PROJECTS;
            let Some(slot) = self.projects.get(column) else { break };
            // Whoever loses the race for a free place sees the winner's name and may go on to the next.
            if **slot.get_or_init(|| namespace.into()) == *namespace {
                return column;
            }
        }
        PROJECTS
    }

    fn sum(&self, tool: Tool, column: usize, pick: impl Fn(&Cell) -> Option<&AtomicU64>) -> u64 {
        self.lanes
            .iter()
            .filter_map(|lane| lane.0.get(tool as usize * COLUMNS + column))
            .filter_map(pick)
            .map(|counter| counter.load(Ordering::Relaxed))
            .sum()
    }

    /// Appends the text a scraper reads.
    pub fn render(&self, text: &mut String) {
        // Writing into a `String` cannot fail.
        let mut family = |name: &str, help: &str, lines: &[String]| {
            let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} counter");
            for line in lines {
                let _ = writeln!(text, "{name}{{{line}");
            }
        };
        let (mut requests, mut bytes) = (Vec::new(), Vec::new());
        for tool in Tool::ALL {
            for column in 0..COLUMNS {
                let project = self
                    .projects
                    .get(column)
                    .map_or(Some("other"), |slot| slot.get().map(|name| &**name));
                let Some(project) = project else { continue };
                let labels = format!("tool=\"{}\",project=\"{project}\"", tool.name());
                for (event, word) in EVENTS {
                    let count = self.sum(tool, column, |cell| cell.events.get(event as usize));
                    if count > 0 {
                        requests.push(format!("{labels},result=\"{word}\"}} {count}"));
                    }
                }
                for (word, count) in [
                    ("sent", self.sum(tool, column, |cell| Some(&cell.sent))),
                    ("received", self.sum(tool, column, |cell| Some(&cell.received))),
                ] {
                    if count > 0 {
                        bytes.push(format!("{labels},direction=\"{word}\"}} {count}"));
                    }
                }
            }
        }
        family(
            "kura_tool_requests_total",
            "Requests of build tools, by project and result.",
            &requests,
        );
        family(
            "kura_tool_bytes_total",
            "Bytes of hits sent and of new entries received.",
            &bytes,
        );
        let shed: Vec<String> = Tool::ALL
            .iter()
            .zip(&self.shed)
            .map(|(tool, counter)| (tool, counter.load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .map(|(tool, count)| format!("tool=\"{}\"}} {count}", tool.name()))
            .collect();
        family(
            "kura_tool_shed_reads_total",
            "Reads answered as a miss because the node was busy or leaving.",
            &shed,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(tools: &Tools) -> String {
        let mut text = String::new();
        tools.render(&mut text);
        text
    }

    #[test]
    fn threads_are_added_up() {
        let tools = Tools::default();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        tools.record(Tool::Gradle, "ios", Event::Hit, 10);
                        tools.record(Tool::Gradle, "android", Event::Miss, 0);
                    }
                });
            }
        });
        tools.record(Tool::Go, "", Event::Stored, 7);
        tools.shed(Tool::Nx);
        let text = text(&tools);
        for line in [
            "kura_tool_requests_total{tool=\"gradle\",project=\"ios\",result=\"hit\"} 400",
            "kura_tool_requests_total{tool=\"gradle\",project=\"android\",result=\"miss\"} 400",
            "kura_tool_bytes_total{tool=\"gradle\",project=\"ios\",direction=\"sent\"} 4000",
            "kura_tool_bytes_total{tool=\"go\",project=\"\",direction=\"received\"} 7",
            "kura_tool_shed_reads_total{tool=\"nx\"} 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} is not in\n{text}");
        }
    }

    #[test]
    fn a_flood_of_projects_ends_up_in_one_column() {
        let tools = Tools::default();
        for number in 0..1000 {
            tools.record(Tool::Bazel, &format!("p{number}"), Event::Miss, 0);
        }
        tools.record(Tool::Bazel, "p1", Event::Miss, 0);
        let text = text(&tools);
        let named = text
            .lines()
            .filter(|line| line.starts_with("kura_tool_requests_total{"));
        assert_eq!(named.count(), COLUMNS, "{text}");
        let labels = "tool=\"bazel\",project=\"other\",result=\"miss\"";
        let other = format!("kura_tool_requests_total{{{labels}}} {}", 1000 - PROJECTS);
        assert!(text.contains(&other), "{text}");
        assert!(text.contains("project=\"p1\",result=\"miss\"} 2"), "{text}");
    }

    #[test]
    fn tool_numbers_are_positions() {
        for (index, tool) in Tool::ALL.iter().enumerate() {
            assert_eq!(*tool as usize, index);
        }
    }
}
