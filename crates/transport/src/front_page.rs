//! The page at `/` of the servers that do not serve the web console: a link to it.

use hyper::header::{
    CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Response};

/// Returns the page. `console` is what an operator gave: it becomes text, and a link only if it is
/// one of HTTP.
#[must_use]
pub fn front_page(server: &str, console: &str) -> Response<String> {
    let console = escaped(console);
    let link = match console.starts_with("http://") || console.starts_with("https://") {
        true => format!("<a href=\"{console}\">{console}</a>"),
        false => console,
    };
    let text = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>Sanderling {server}</title></head>\n\
         <body><main><h1>Sanderling {server}</h1>\n\
         <p>Console of the cluster: {link}</p>\n\
         <p>This server: <a href=\"/healthz\">health</a>, <a href=\"/metrics\">metrics</a></p>\n\
         </main></body></html>\n"
    );
    let mut response = Response::new(text);
    let headers: &mut HeaderMap = response.headers_mut();
    let policy = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            letter => escaped.push(letter),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn console_is_linked_and_an_address_with_markup_stays_text() {
        let page = front_page("datanode", "https://nn:7601/").into_body();
        assert!(page.contains("<a href=\"https://nn:7601/\">https://nn:7601/</a>"), "{page}");
        for hostile in ["javascript:alert(1)", "https://x/\"><script>", "http://x/'onclick='y"] {
            let page = front_page("datanode", hostile).into_body();
            assert!(!page.contains("<script") && !page.contains("='y"), "{page}");
            assert!(!page.contains("\"javascript"), "{page}");
        }
    }
}
