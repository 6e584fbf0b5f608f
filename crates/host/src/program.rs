//! Programs in PATH.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Whether `program` is the path of an executable file, or the name of an executable file in PATH.
pub fn is_installed(program: &str) -> bool {
    let executable = |path: &Path| {
        path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
    };
    if program.contains('/') {
        return executable(Path::new(program));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| executable(&folder.join(program)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn installed_programs_are_found_by_name_and_by_path() {
        assert!(is_installed("sh") && is_installed("/bin/sh"));
        for absent in ["", "no-such-program", "/bin", "/etc/passwd", "./sh"] {
            assert!(!is_installed(absent), "{absent}");
        }
    }
}
