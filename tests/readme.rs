//! The program in the README is the one that is compiled in tests/ui/pass, but for the images, which a build script makes.

#[test]
fn the_readme_shows_a_program_that_compiles() {
    let readme = include_str!("../README.md");
    let (_, rest) = readme.split_once("```rust\n").unwrap();
    let (shown, _) = rest.split_once("```").unwrap();
    let shown = shown.replace("tilewright::images!(); // the PTX that build.rs compiled", "tilewright::images!(none);");
    assert_eq!(shown, include_str!("ui/pass/readme.rs"));
}
