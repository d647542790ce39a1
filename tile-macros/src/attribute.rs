//! What stands between the parentheses of `#[kernel(...)]`.

use proc_macro2::{Ident, TokenStream};
use syn::parse::{Parse, ParseStream};
use syn::{AngleBracketedGenericArguments, LitInt, LitStr, Token, parenthesized};

/// The options, checked.
pub struct Options {
    /// `sm_80` or `sm_90a`.
    pub arch: String,
    /// `PerTile` or `Persistent`.
    pub persistent: bool,
    /// Blocks that an SM must be able to hold.
    pub min_blocks: u64,
    /// Name and message of each fault that the kernel can report.
    pub faults: Vec<(Ident, LitStr)>,
    /// Name and generic arguments of each instance.
    pub instances: Vec<Instance>,
}

/// One instance of a generic kernel.
pub struct Instance {
    /// Last part of the entry's name.
    pub name: Ident,
    /// `<f32, 256>`.
    pub arguments: AngleBracketedGenericArguments,
}

impl Instance {
    /// The arguments' tokens, one stream each.
    pub fn tokens(&self) -> Vec<TokenStream> {
        self.arguments.args.iter().map(|a| quote::quote!(#a)).collect()
    }
}

impl Parse for Options {
    fn parse(input: ParseStream) -> syn::Result<Self> {
        let mut options = Options {
            arch: "sm_80".into(),
            persistent: false,
            min_blocks: 1,
            faults: Vec::new(),
            instances: Vec::new(),
        };
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            match key.to_string().as_str() {
                "arch" => {
                    input.parse::<Token![=]>()?;
                    let value: LitStr = input.parse()?;
                    options.arch = value.value();
                    if !["sm_80", "sm_90a"].contains(&options.arch.as_str()) {
                        return Err(syn::Error::new(value.span(), "images are built for \"sm_80\" and \"sm_90a\""));
                    }
                }
                "grid" => {
                    input.parse::<Token![=]>()?;
                    let value: Ident = input.parse()?;
                    options.persistent = match value.to_string().as_str() {
                        "persistent" => true,
                        "per_tile" => false,
                        _ => return Err(syn::Error::new(value.span(), "expected `per_tile` or `persistent`")),
                    };
                }
                "min_blocks" => {
                    input.parse::<Token![=]>()?;
                    let value: LitInt = input.parse()?;
                    options.min_blocks = value.base10_parse()?;
                    if !(1..=32).contains(&options.min_blocks) {
                        return Err(syn::Error::new(value.span(), "an SM holds 1 to 32 blocks"));
                    }
                }
                "faults" => {
                    let list;
                    parenthesized!(list in input);
                    while !list.is_empty() {
                        let name = list.parse()?;
                        list.parse::<Token![=]>()?;
                        options.faults.push((name, list.parse()?));
                        if !list.is_empty() {
                            list.parse::<Token![,]>()?;
                        }
                    }
                }
                "instances" => {
                    let list;
                    parenthesized!(list in input);
                    while !list.is_empty() {
                        let name = list.parse()?;
                        list.parse::<Token![=]>()?;
                        options.instances.push(Instance { name, arguments: list.parse()? });
                        if !list.is_empty() {
                            list.parse::<Token![,]>()?;
                        }
                    }
                }
                _ => {
                    let message = "expected `arch`, `grid`, `min_blocks`, `faults` or `instances`";
                    return Err(syn::Error::new(key.span(), message));
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}
