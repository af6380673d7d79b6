//! Gives the shared library the name under which programs look for it: the number changes with the binary interface.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libearlybird.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}
