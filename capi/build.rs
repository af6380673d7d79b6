//! Gives the shared library the name under which programs look for it, whose number changes with the binary interface, and
//! keeps it loaded: a thread of it may still run when a program unloads it.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libearlybird.so.0");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo:rerun-if-changed=build.rs");
}
