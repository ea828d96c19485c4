//! The differences to a stock kubelet that are as they should be.

use super::differences::{ANY, Chance, Difference, EVERYTHING};

const fn always(
    cases: &'static [&'static str],
    aspect: &'static str,
    stock: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference {
        cases,
        aspect,
        stock,
        ours,
        why,
        chance: Chance::Nobody,
    }
}

/// Ours tells this or the same as a stock kubelet, by who is faster.
const fn perhaps(
    cases: &'static [&'static str],
    aspect: &'static str,
    stock: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference {
        chance: Chance::Ours,
        ..always(cases, aspect, stock, ours, why)
    }
}

/// A stock kubelet tells this or the same as ours, by who is faster.
const fn stock_perhaps(
    cases: &'static [&'static str],
    aspect: &'static str,
    stock: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    Difference {
        chance: Chance::Stock,
        ..always(cases, aspect, stock, ours, why)
    }
}

/// An aspect that nobody can foresee of a stock kubelet, because it tells it as it happens. Ours tells this.
const fn whatever(
    cases: &'static [&'static str],
    aspect: &'static str,
    ours: &'static str,
    why: &'static str,
) -> Difference {
    stock_perhaps(cases, aspect, ANY, ours, why)
}

const AGAIN: &str = "A VM takes a while to come up again, so a restart is told as the making of a container.";
const CONFIGURED: &str = "Ours tells that it makes the VM once the configuration is there, which takes a while; a stock \
    kubelet goes from the error to running in one write.";
const NOT_READY: &str = "A stock kubelet kills and starts a container in one breath and tells of neither; a VM \
    takes a while, and nobody is ready meanwhile.";
const FAILED: &str = "The Pod is over and has failed, and its conditions say so; a stock kubelet makes them before \
    it decides on the phase.";
const NO_PROCESS_1: &str = "A program in a VM is not process 1, which would ignore a signal it has no handler for.";
const NO_PROGRAM: &str = "Whether a program is there is seen in the VM only, by the shell that is to become it.";
const HOOK: &str = "A stock kubelet tells of a container once its hook is done; a VM that runs is told of at once. That the hook failed \
    is told by both as what the next start waits for.";
const BACK_OFF: &str =
    "A stock kubelet says that it waits when it looks at the container again, which is when it waits no more.";
const LOST: &str =
    "A container that never ran is told as lost once the Pod is over; a stock kubelet may leave what it last said.";
const TAKEN_AWAY: &str =
    "A stock kubelet takes the containers of an evicted Pod away, if it is quick before it has read how they ended.";

/// All differences there are.
pub(crate) const JUSTIFIED: &[Difference] = &[
    always(
        &[
            "always-0",
            "liveness-exec",
            "liveness-http",
            "liveness-tcp",
            "liveness-grpc",
            "startup-fails",
            "new-image",
        ],
        "main: state",
        "waiting (ContainerCreating) → running",
        "waiting (ContainerCreating) → running → waiting (ContainerCreating) → running",
        AGAIN,
    ),
    always(
        &["on-failure-1-0"],
        "main: state",
        "waiting (ContainerCreating) → running → ended 0 (Completed)",
        "waiting (ContainerCreating) → running → waiting (ContainerCreating) → running → ended 0 (Completed)",
        AGAIN,
    ),
    always(
        &["crash-loop"],
        "main: state",
        "waiting (ContainerCreating) → running → waiting (CrashLoopBackOff) → running",
        "waiting (ContainerCreating) → running → waiting (ContainerCreating) → running → waiting (CrashLoopBackOff) \
         → waiting (ContainerCreating) → running",
        AGAIN,
    ),
    always(
        &["init-again"],
        "one: state",
        "waiting (PodInitializing) → running → ended 0 (Completed)",
        "waiting (PodInitializing) → running → waiting (ContainerCreating) → running → ended 0 (Completed)",
        AGAIN,
    ),
    always(
        &["sidecar-again"],
        "side: state",
        "waiting (PodInitializing) → running",
        "waiting (PodInitializing) → running → waiting (ContainerCreating) → running",
        AGAIN,
    ),
    always(
        &["no-config-map", "no-secret"],
        "main: state",
        "waiting (ContainerCreating) → waiting (CreateContainerConfigError) → running",
        "waiting (ContainerCreating) → waiting (CreateContainerConfigError) → waiting (ContainerCreating) → running",
        CONFIGURED,
    ),
    always(
        &["liveness-tcp", "liveness-grpc", "new-image"],
        "Ready",
        "False (ContainersNotReady) → True",
        "False (ContainersNotReady) → True → False (ContainersNotReady) → True",
        NOT_READY,
    ),
    always(
        &["liveness-tcp", "liveness-grpc", "new-image"],
        "ContainersReady",
        "False (ContainersNotReady) → True",
        "False (ContainersNotReady) → True → False (ContainersNotReady) → True",
        NOT_READY,
    ),
    always(
        &["liveness-tcp", "liveness-grpc", "new-image"],
        "main: ready",
        "no → yes",
        "no → yes → no → yes",
        NOT_READY,
    ),
    always(
        &["liveness-tcp", "liveness-grpc", "new-image"],
        "main: started",
        "no → yes",
        "no → yes → no → yes",
        NOT_READY,
    ),
    always(
        &["delete-unmounted", "delete-pending", "delete-init"],
        "Ready",
        "False (ContainersNotReady)",
        "False (ContainersNotReady) → False (PodFailed)",
        FAILED,
    ),
    always(
        &["delete-unmounted", "delete-pending", "delete-init"],
        "ContainersReady",
        "False (ContainersNotReady)",
        "False (ContainersNotReady) → False (PodFailed)",
        FAILED,
    ),
    stock_perhaps(
        &["delete-pending"],
        "main: state",
        "waiting (ContainerCreating) → waiting (ErrImagePull) → waiting (ImagePullBackOff) → waiting \
         (ContainerCreating) → ended 137 (ContainerStatusUnknown)",
        "waiting (ContainerCreating) → waiting (ErrImagePull) → waiting (ImagePullBackOff) → ended 137 \
         (ContainerStatusUnknown)",
        "While it ends, a stock kubelet forgets what a container waited for.",
    ),
    always(
        &["liveness-http"],
        "main: last state",
        "ended 137 (Error)",
        "ended 143 (Error)",
        NO_PROCESS_1,
    ),
    always(
        &["delete-no-handler"],
        "main: state",
        "waiting (ContainerCreating) → running → ended 137 (Error)",
        "waiting (ContainerCreating) → running → ended 143 (Error)",
        NO_PROCESS_1,
    ),
    perhaps(
        &["no-program"],
        "main: state",
        "waiting (ContainerCreating) → ended 128 (StartError)",
        "waiting (ContainerCreating) → ended 127 (Error)",
        NO_PROGRAM,
    ),
    perhaps(
        &["no-program"],
        "main: state",
        "waiting (ContainerCreating) → ended 128 (StartError)",
        "waiting (ContainerCreating) → running → ended 127 (Error)",
        NO_PROGRAM,
    ),
    always(
        &["no-program"],
        "main: last words",
        "failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create \
         failed: unable to start container process: exec: \"/no/such/program\": stat /no/such/program: no such file \
         or directory: unknown",
        "",
        NO_PROGRAM,
    ),
    perhaps(
        &["no-program"],
        "phase",
        "Pending → Failed",
        "Pending → Running → Failed",
        NO_PROGRAM,
    ),
    perhaps(&["no-program"], "main: ready", "no", "no → yes → no", NO_PROGRAM),
    perhaps(&["no-program"], "main: started", "no", "no → yes → no", NO_PROGRAM),
    perhaps(
        &["no-program"],
        "Ready",
        "False (ContainersNotReady) → False (PodFailed)",
        "False (ContainersNotReady) → True → False (PodFailed)",
        NO_PROGRAM,
    ),
    perhaps(
        &["no-program"],
        "ContainersReady",
        "False (ContainersNotReady) → False (PodFailed)",
        "False (ContainersNotReady) → True → False (PodFailed)",
        NO_PROGRAM,
    ),
    always(
        &["post-start-fails"],
        "main: state",
        "waiting (ContainerCreating) → waiting (PostStartHookError) → running",
        "waiting (ContainerCreating) → running → waiting (PostStartHookError) → running",
        HOOK,
    ),
    always(
        &["unknown-resource"],
        EVERYTHING,
        "Pending → Running",
        "Pending → Failed (OutOfexample.com/device)",
        "A stock kubelet runs a Pod without the device it asks for, since a plugin may bring it later; a VM will \
         never have it.",
    ),
    always(
        &["host-network", "privileged"],
        EVERYTHING,
        "Pending → Running",
        "Pending → Failed (UnsupportedByVM)",
        "A VM has no part in its host; to run without what was asked for would be a lie.",
    ),
    whatever(
        &["late-image"],
        "main: state",
        "waiting (ContainerCreating) → waiting (ErrImagePull) → waiting (ImagePullBackOff) → waiting \
         (ContainerCreating) → running",
        BACK_OFF,
    ),
    whatever(
        &["delete-crash-loop"],
        "main: state",
        "waiting (ContainerCreating) → running → waiting (ContainerCreating) → running → waiting (CrashLoopBackOff) \
         → ended 2 (Error)",
        BACK_OFF,
    ),
    whatever(
        &["deadline-pending"],
        "main: state",
        "waiting (ContainerCreating) → waiting (ErrImagePull) → waiting (ImagePullBackOff) → ended 137 \
         (ContainerStatusUnknown)",
        LOST,
    ),
    whatever(
        &["deadline-pending"],
        "main: last words",
        "The container could not be located when the pod was terminated",
        LOST,
    ),
    whatever(
        &["full-volume", "full-pod"],
        "main: state",
        "waiting (ContainerCreating) → running → ended 3 (Error)",
        TAKEN_AWAY,
    ),
    whatever(&["full-volume", "full-pod"], "main: last state", "", TAKEN_AWAY),
    whatever(&["full-volume", "full-pod"], "main: restarts", "0", TAKEN_AWAY),
];
