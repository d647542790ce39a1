//! The tutorial's program, compiled and run; and that the tutorial shows this program and no other.
#![allow(dead_code, reason = "its `main` is called by a test")]

use std::path::Path;

include!("../docs/tutorial/src/main.rs");

mod build_script {
    include!("../docs/tutorial/build.rs");
}

#[test]
fn runs() {
    main().unwrap();
}

#[test]
fn shows_what_is_compiled() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let tutorial = std::fs::read_to_string(docs.join("tutorial.md")).unwrap();
    let mut blocks = 0;
    for part in tutorial.split("<!-- ").skip(1) {
        let (name, rest) = part.split_once(" -->\n```").unwrap();
        let code = rest.split_once('\n').unwrap().1.split_once("```\n").unwrap().0;
        let file = std::fs::read_to_string(docs.join("tutorial").join(name)).unwrap();
        assert!(file.contains(code), "docs/tutorial/{name} does not have\n{code}");
        blocks += 1;
    }
    // besides these there is one block of output
    assert_eq!(tutorial.matches("```").count(), 2 * (blocks + 1));
}
