//! What `#[kernel]` expands to.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{format_ident, quote};
use syn::{FnArg, GenericParam, ItemFn, Pat, Type};

use crate::attribute::Options;
use crate::rewrite::{inline_closures, substitute, turbofish, with_lifetime};

struct Parameter {
    name: Ident,
    ty: Type,
    shared: bool,
}

/// The function itself, the kernel's type, and an entry for each instance.
pub fn kernel(options: Options, mut function: ItemFn) -> syn::Result<TokenStream> {
    let parameters = parameters(&mut function)?;
    check(&function, &options)?;
    let generics: Vec<Ident> = function
        .sig
        .generics
        .params
        .iter()
        .filter_map(|p| match p {
            GenericParam::Type(t) => Some(t.ident.clone()),
            GenericParam::Const(c) => Some(c.ident.clone()),
            GenericParam::Lifetime(_) => None,
        })
        .collect();

    let mut entries = TokenStream::new();
    if generics.is_empty() {
        entries.extend(entry(&options, &function, &parameters, None, &[]));
    }
    for instance in &options.instances {
        let arguments = &instance.arguments;
        if arguments.len() != generics.len() {
            let message = format!("`{}` has {} generic parameters", function.sig.ident, generics.len());
            return Err(syn::Error::new(instance.name.span(), message));
        }
        let map: Vec<_> = generics.iter().cloned().zip(arguments.iter().cloned()).collect();
        entries.extend(entry(&options, &function, &parameters, Some(&instance.name), &map));
    }

    inline_closures(&mut function.block);
    for (index, (name, message)) in options.faults.iter().enumerate().rev() {
        let (index, doc) = (Literal::u32_unsuffixed(index as u32), message.value());
        let fault = syn::parse_quote!(
            #[doc = #doc]
            const #name: ::tilewright::fault::Fault = ::tilewright::fault::Fault::declared(#index);
        );
        function.block.stmts.insert(0, fault);
    }
    let kernel_type = kernel_type(&function);
    // A body may use what only its image has.
    let image = match options.arch.as_str() {
        "sm_90a" => quote!(#[cfg(any(not(target_arch = "nvptx64"), target_feature = "sm_90a"))]),
        _ => quote!(),
    };
    Ok(quote! {
        #image
        #[inline(always)]
        #[allow(clippy::too_many_arguments)]
        #function
        #kernel_type
        #entries
    })
}

/// Takes the parameters apart, and `#[shared]` off them.
fn parameters(function: &mut ItemFn) -> syn::Result<Vec<Parameter>> {
    let mut all = Vec::new();
    for input in &mut function.sig.inputs {
        let FnArg::Typed(typed) = input else {
            return Err(syn::Error::new_spanned(input, "a kernel is a free function"));
        };
        let Pat::Ident(name) = &*typed.pat else {
            return Err(syn::Error::new_spanned(&typed.pat, "a kernel's parameter is a plain name"));
        };
        if let Type::Reference(reference) = &*typed.ty {
            let message = "a kernel takes views of device memory, not references: `x: Tiles<f32, 1, 256>`";
            return Err(syn::Error::new_spanned(reference, message));
        }
        let before = typed.attrs.len();
        typed.attrs.retain(|a| !a.path().is_ident("shared"));
        let shared = typed.attrs.len() < before;
        all.push(Parameter { name: name.ident.clone(), ty: (*typed.ty).clone(), shared });
    }
    Ok(all)
}

fn check(function: &ItemFn, options: &Options) -> syn::Result<()> {
    let sig = &function.sig;
    if sig.inputs.is_empty() {
        return Err(syn::Error::new_spanned(sig, "a kernel's first parameter is the block's token: `cta: Cta<256>`"));
    }
    if let syn::ReturnType::Type(_, ty) = &sig.output {
        return Err(syn::Error::new_spanned(ty, "a kernel returns nothing: it writes its outputs"));
    }
    for (modifier, present) in
        [("async", sig.asyncness.is_some()), ("unsafe", sig.unsafety.is_some()), ("extern", sig.abi.is_some())]
    {
        if present {
            return Err(syn::Error::new_spanned(
                sig,
                format!("a kernel is an ordinary safe function, not `{modifier}`"),
            ));
        }
    }
    let generic = sig.generics.params.iter().any(|p| !matches!(p, GenericParam::Lifetime(_)));
    if generic && options.instances.is_empty() {
        let message = "a generic kernel lists what it is compiled for: `instances(name = <f32, 256>)`";
        return Err(syn::Error::new_spanned(&sig.generics, message));
    }
    if !generic && !options.instances.is_empty() {
        return Err(syn::Error::new_spanned(&sig.ident, "only a generic kernel has instances"));
    }
    Ok(())
}

/// The type beside the function, under its name.
fn kernel_type(function: &ItemFn) -> TokenStream {
    let (vis, name) = (&function.vis, &function.sig.ident);
    let mut generics = function.sig.generics.clone();
    generics.params = generics.params.into_iter().filter(|p| !matches!(p, GenericParam::Lifetime(_))).collect();
    let (with_bounds, _, clause) = generics.split_for_impl();
    let types: Vec<_> = generics.type_params().map(|t| &t.ident).collect();
    let doc = format!("The kernel [`{name}`](fn@{name}), for launches.");
    quote! {
        #[cfg(not(target_arch = "nvptx64"))]
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #vis struct #name #with_bounds #clause {
            _never_made: (::core::convert::Infallible, ::core::marker::PhantomData<fn() -> (#(#types,)*)>),
        }
    }
}

/// `crate::module::kernel`: the same in the host build and in the device build, where the crate root may be another
/// file. So it is made from the package's name and the source file's path below `src`.
fn readable_name(function: &Ident, instance: Option<&Ident>) -> String {
    let package = std::env::var("CARGO_PKG_NAME").unwrap_or_default().replace('-', "_");
    let file = proc_macro::Span::call_site().file();
    let mut parts: Vec<&str> = file.split(['/', '\\']).collect();
    if let Some(src) = parts.iter().rposition(|p| ["src", "examples", "tests", "benches"].contains(p)) {
        parts.drain(..=src);
    }
    let mut name = package;
    for part in parts {
        let part = part.strip_suffix(".rs").unwrap_or(part);
        if !["lib", "main", "mod", ""].contains(&part) {
            name += "::";
            name += part;
        }
    }
    name += &format!("::{function}");
    if let Some(instance) = instance {
        name += &format!("::{instance}");
    }
    name
}

/// One instance: an invocation of the core crate's `__kernel!`, which has a body for each machine.
fn entry(
    options: &Options,
    function: &ItemFn,
    parameters: &[Parameter],
    instance: Option<&Ident>,
    map: &[(Ident, TokenStream)],
) -> TokenStream {
    let name = &function.sig.ident;
    let readable = readable_name(name, instance);
    let symbol_text: String =
        readable.replace("::", "__").chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    let symbol = Ident::new(&symbol_text, Span::call_site());
    let meta = format_ident!("{symbol_text}__meta");

    let arguments: Vec<TokenStream> = map.iter().map(|(_, with)| with.clone()).collect();
    let kernel = if arguments.is_empty() { quote!(#name) } else { quote!(#name<#(#arguments),*>) };
    let fish = turbofish(&arguments);

    let block_name = &parameters[0].name;
    let block_type = &parameters[0].ty;
    let block_type = substitute(quote!(#block_type), map);
    let mut shared = Vec::new();
    let mut args = Vec::new();
    for p in &parameters[1..] {
        let p_name = &p.name;
        if p.shared {
            let ty = &p.ty;
            let ty = substitute(quote!(#ty), map);
            let index = Literal::usize_unsuffixed(shared.len());
            shared.push(quote!(#p_name : #ty = #index));
        } else {
            let (fixed, free) = (with_lifetime(&p.ty, "'static"), with_lifetime(&p.ty, "'a"));
            let (fixed, free) = (substitute(quote!(#fixed), map), substitute(quote!(#free), map));
            let n = args.len();
            let (ptr, m) = (format_ident!("p{n}"), format_ident!("m{n}"));
            let m_index = Literal::usize_unsuffixed(2 * n + 1);
            let text = p_name.to_string();
            args.push(quote!(#p_name : #fixed, #free = #ptr #m #m_index #text));
        }
    }
    let call_names = parameters.iter().map(|p| &p.name);
    let image = if options.arch == "sm_90a" { quote!(hopper) } else { quote!(portable) };
    let arch = &options.arch;
    let min_blocks = &options.min_blocks;
    let min_blocks = substitute(quote!(#min_blocks), map);
    let messages = options.faults.iter().map(|(_, message)| message);
    let faults = if options.faults.is_empty() { quote!() } else { quote!(sink #(#messages)*) };
    let grid = &options.grid;
    quote! {
        ::tilewright::__kernel! { #image
            kernel { #kernel }
            symbol { #symbol #meta #symbol_text }
            name { #readable }
            arch { #arch }
            min_blocks { #min_blocks }
            grid { #grid }
            faults { #faults }
            block { #block_name : #block_type }
            shared { #(#shared),* }
            args { #(#args),* }
            images { crate::__TILEWRIGHT_IMAGES }
            call { #name #fish (#(#call_names),*) }
        }
    }
}
