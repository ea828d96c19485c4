//! The state of the moment, read when someone looks.

use crate::http::service::Shared;
use crate::pressure::Process;

/// Name, type, labels and value of a metric with labels. Lines of one metric stand together.
pub type Labelled = (&'static str, &'static str, String, f64);

/// Gauges without labels: name, help, value.
#[expect(clippy::cast_precision_loss, reason = "gauges are floats on the wire")]
pub fn plain(shared: &Shared) -> Vec<(&'static str, &'static str, f64)> {
    let (pressure, process) = (&shared.pressure, Process::now());
    let bounds = pressure.bounds();
    vec![
        (
            "memory_pressure_state",
            "0 normal, 1 constrained, 2 critical.",
            f64::from(pressure.state() as u8),
        ),
        (
            "memory_soft_limit_bytes",
            "From here on work that can wait is paused.",
            bounds.soft as f64,
        ),
        (
            "memory_hard_limit_bytes",
            "From here on large uploads are refused.",
            bounds.hard as f64,
        ),
        (
            "memory_used_bytes",
            "Memory in use that the kernel cannot take back.",
            pressure.used() as f64,
        ),
        (
            "memory_transient_reserved_bytes",
            "Bytes of requests in flight.",
            shared.budget.reserved() as f64,
        ),
        (
            "memory_transient_capacity_bytes",
            "Most bytes of requests in flight.",
            shared.budget.capacity() as f64,
        ),
        (
            "process_resident_memory_bytes",
            "Memory of the process.",
            process.resident as f64,
        ),
        (
            "process_resident_anon_memory_bytes",
            "Of that, its own.",
            process.anonymous as f64,
        ),
        (
            "process_resident_file_memory_bytes",
            "Of that, pages of files.",
            process.file as f64,
        ),
        (
            "process_virtual_memory_bytes",
            "Address space of the process.",
            process.virtual_size as f64,
        ),
        (
            "file_descriptor_in_use",
            "Open files and sockets.",
            open_descriptors() as f64,
        ),
        (
            "public_request_latency_ewma_ms",
            "Moving average of the time requests take.",
            shared.metrics.latency() as f64 / 1e6,
        ),
    ]
}

/// Everything with labels that is not counted per thread.
#[expect(clippy::cast_precision_loss, reason = "metrics are floats on the wire")]
pub fn labelled(shared: &Shared) -> Vec<Labelled> {
    let mut lines: Vec<Labelled> = Vec::new();
    let pressure = &shared.pressure;
    lines.push((
        "memory_pressure_transitions_total_total",
        "counter",
        String::new(),
        pressure.transitions() as f64,
    ));
    for (action, count) in pressure.actions() {
        let labels = format!("action=\"{action}\"");
        lines.push(("memory_actions_total_total", "counter", labels, count as f64));
    }
    let paused = f64::from(u8::from(pressure.state() >= crate::pressure::State::Constrained));
    let labels = "worker=\"scrub\"".to_owned();
    lines.push(("background_work_paused", "gauge", labels, paused));
    for (result, count) in shared.uploads.parts() {
        let labels = format!("result=\"{result}\"");
        lines.push(("multipart_parts_total_total", "counter", labels, count as f64));
    }
    if let Some(counts) = shared.traces.counts() {
        for (result, count) in [
            ("exported", counts.exported()),
            ("dropped", counts.dropped()),
            ("failed", counts.failed()),
        ] {
            let labels = format!("result=\"{result}\"");
            lines.push(("trace_spans_total_total", "counter", labels, count as f64));
        }
    }
    lines.extend(shared.analytics.lines());
    lines
}

/// How many descriptors the process has; zero where the kernel does not list them.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count)
}
