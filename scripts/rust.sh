# Sourced by the scripts beside it: puts a Rust that is new enough first in PATH, if there is one. A machine may
# have several versions of Rust: a distribution's old one, its newer one in a separate folder, rustup's.

# Programs installed by cargo are found too.
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

oldest_rust=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' Cargo.toml)

# True if version $1 is at least $2.
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -1)" = "$2" ]; }

rust_version() { rustc --version 2>/dev/null | awk '{print $2}'; }

rust_will_do() { command -v cargo >/dev/null 2>&1 && at_least "$(rust_version)" "$oldest_rust"; }

find_rust() {
  local original=$PATH folder
  for folder in "" "${CARGO_HOME:-$HOME/.cargo}/bin" /usr/bin $(printf '%s\n' /usr/lib/rust-*/bin | sort -Vr); do
    PATH=${folder:+$folder:}$original
    hash -r
    rust_will_do && return
  done
  PATH=$original
  return 1
}

# Sets `target`, the absolute path of cargo's folder for builds. make, which builds libbpf, splits paths at spaces, so
# a checkout with a space in its path builds in the user's cache.
choose_target() {
  target=$(realpath -sm "${CARGO_TARGET_DIR:-target}")
  [[ $target =~ [[:space:]] ]] || return 0
  target=${XDG_CACHE_HOME:-$HOME/.cache}/weir/target
  if [[ $target =~ [[:space:]] ]]; then
    echo "libbpf cannot be built in a folder with a space in its path: set CARGO_TARGET_DIR to a folder without spaces" >&2
    return 1
  fi
  export CARGO_TARGET_DIR=$target
}
