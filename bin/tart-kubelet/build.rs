//! Embeds the build id that `--version` and `/version` show.

fn main() {
    russet_build_id::emit();
}
