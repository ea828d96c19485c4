//! The store against a release host that misbehaves, a real Go toolchain, and other processes.

#[cfg(test)]
mod building;
#[cfg(test)]
mod debian;
#[cfg(test)]
mod exhaustion;
#[cfg(test)]
mod given;
#[cfg(test)]
mod registries;
#[cfg(test)]
mod releases;
#[cfg(test)]
mod sharing;
#[cfg(test)]
mod support;
