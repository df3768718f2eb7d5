/* SPDX-License-Identifier: MIT */
/* page.c - HTML around the plots. */
#include "report/page.h"

#include "report/plot.h"

#include <stdio.h>
#include <string.h>

static const char style[] =
    ":root{color-scheme:light dark;--ground:#f6f7f9;--card:#fff;--ink:#1c2128;--soft:#5b6470;"
    "--line:#e1e5ea;--accent:#0072b2;--good:#00805d;--warn:#b45309;--bad:#c0362c}\n"
    "@media screen and (prefers-color-scheme:dark){:root{--ground:#12151a;--card:#1a1e25;"
    "--ink:#e6e9ee;--soft:#a3abb7;--line:#2b313a;--accent:#5ab4ec;--good:#3fcf9f;--warn:#"
    "f5bf45;"
    "--bad:#ff8078}}\n"
    "*{box-sizing:border-box}\n"
    "body{margin:0;background:var(--ground);color:var(--ink);font:15px/1.5 system-ui,"
    "-apple-system,'Segoe UI',Roboto,'Helvetica Neue',Arial,sans-serif;"
    "font-variant-numeric:tabular-nums}\n"
    "main{max-width:1180px;margin:0 auto;padding:40px 28px 28px}\n"
    "header{margin-bottom:26px}\n"
    ".mark{display:flex;align-items:center;gap:12px;margin:0 0 6px;color:var(--soft)}\n"
    ".mark b{font:italic 500 19px Georgia,'Times New Roman',serif;color:var(--accent);"
    "letter-spacing:.01em}\n"
    "h1{font-size:34px;line-height:1.15;font-weight:650;letter-spacing:-.018em;margin:0 0 8px;"
    "overflow-wrap:anywhere}\n"
    "h1 i{font-style:normal;font-weight:400;color:var(--soft)}\n"
    ".facts{margin:0;color:var(--soft);overflow-wrap:anywhere}\n"
    ".facts span+span:before{content:'\\00b7';margin:0 9px;opacity:.7}\n"
    ".badge{font-size:12px;font-weight:600;padding:1px 10px;border-radius:99px;"
    "border:1px solid currentColor}\n"
    ".good{color:var(--good)}.warn{color:var(--warn)}.bad{color:var(--bad)}\n"
    "section{margin:0 0 34px}\n"
    "h2{font-size:19px;font-weight:650;letter-spacing:-.01em;margin:0 0 14px}\n"
    ".cards{display:flex;flex-wrap:wrap;gap:10px;margin-bottom:34px}\n"
    ".card,figure,.box,details{background:var(--card);border:1px solid var(--line);"
    "border-radius:12px}\n"
    ".card{flex:1 1 auto;max-width:280px;padding:12px 13px;min-width:0}\n"
    ".card p{margin:0;font-size:12.5px;color:var(--soft);white-space:nowrap}\n"
    ".card .figure{font-size:21px;line-height:1.4;font-weight:640;letter-spacing:-.02em;"
    "color:var(--ink)}\n"
    ".card:first-child .figure{color:var(--accent)}\n"
    ".plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));"
    "gap:16px}\n"
    "figure{margin:0;padding:16px 18px 12px;min-width:0}\n"
    "figure>svg{display:block;width:100%;height:auto}\n"
    ".scroll{overflow:auto}\n"
    "table{border-collapse:collapse;width:100%;font-size:14px}\n"
    "th,td{text-align:right;padding:5px 12px;border-top:1px solid var(--line);"
    "white-space:nowrap}\n"
    "th{font-weight:600;color:var(--soft);font-size:13px}\n"
    "tr:first-child>th{border-top:0}\n"
    "th:first-child,td:first-child{text-align:left}\n"
    ".box{padding:10px 6px}\n"
    ".settings{columns:2 420px;column-gap:28px;padding:6px 14px}\n"
    ".settings div{display:flex;gap:14px;padding:4px 0;break-inside:avoid;font-size:14px;"
    "border-bottom:1px solid var(--line)}\n"
    ".settings dt{color:var(--soft);flex:0 0 42%;overflow-wrap:anywhere}\n"
    ".settings dd{margin:0;overflow-wrap:anywhere}\n"
    "dl{margin:0}\n"
    "details{margin-top:16px}\n"
    "summary{cursor:pointer;padding:11px 18px;font-weight:600}\n"
    "details>div{border-top:1px solid var(--line)}\n"
    ".graph{padding:16px;max-height:80vh;border-radius:0 0 12px 12px}\n"
    "pre{margin:0;padding:14px 18px;background:var(--card);border:1px solid var(--line);"
    "border-radius:12px;font:13.5px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,"
    "'DejaVu Sans Mono',monospace;white-space:pre-wrap;overflow-wrap:anywhere;"
    "user-select:all}\n"
    ".note{margin:0 0 16px;padding:9px 16px;background:var(--card);border:1px solid "
    "var(--line);"
    "border-left:4px solid var(--warn);border-radius:6px;overflow-wrap:anywhere}\n"
    ".under{margin:8px 2px 0;font-size:13px;color:var(--soft);overflow-wrap:anywhere}\n"
    "footer{color:var(--soft);font-size:13px;border-top:1px solid var(--line);padding-top:14px;"
    "overflow-wrap:anywhere}\n"
    "@media print{:root{--ground:#fff}body{font-size:9.5pt}main{max-width:none;padding:0 1px}"
    ".card,figure,tr,pre,.settings div{break-inside:avoid}h2{break-after:avoid}"
    "header,.cards,section{margin-bottom:18px}.plots{grid-template-columns:1fr 1fr;gap:10px}"
    ".cards{gap:6px;flex-wrap:nowrap}.card{padding:6px 8px}.card p{font-size:7pt}"
    ".card .figure{font-size:11.5pt}figure{padding:10px}.settings{columns:2;column-gap:16px}"
    "table,.settings div{font-size:8.5pt}th{font-size:8pt}"
    ".graph{max-height:none}details:not([open]){display:none}@page{margin:14mm}}\n";

/* Wide plots, tables that shall fit a page, and pictures made of pixels. */
static const char picture_style[] =
    ".wide{grid-column:1/-1}\n"
    ".fit th,.fit td{white-space:normal;padding:5px 8px}"
    ".fit .name{text-align:left;overflow-wrap:anywhere;min-width:150px}\n"
    ".pixels{image-rendering:pixelated;border-radius:4px}\n"
    ".sheet{display:flex;gap:16px;padding:16px 18px}\n"
    ".sheet .pixels{flex:1 1 auto;min-width:0;max-width:1000px;height:auto}\n"
    ".rows{display:grid;gap:4px 26px;padding:14px 18px}\n"
    ".rows.two{grid-template-columns:repeat(auto-fit,minmax(min(480px,100%),1fr))}\n"
    ".row{display:flex;align-items:center;gap:4px;min-width:0;overflow:hidden}\n"
    ".row b{flex:0 0 104px;font-weight:400;font-size:13.5px;color:var(--soft);"
    "overflow-wrap:anywhere;line-height:1.2;padding-right:8px}\n"
    ".row .pixels{display:block;flex:none}\n"
    ".average{padding-right:8px;margin-right:4px;border-right:1px solid var(--line)}\n"
    ".sides{display:flex;flex-direction:column;justify-content:space-around;font-size:13px;"
    "color:var(--soft)}\n";

/* What a model of language said. */
static const char text_style[] =
    ".said{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(460px,100%),1fr));"
    "gap:16px}\n"
    ".said figcaption{font-size:13px;color:var(--soft);margin-bottom:8px}\n"
    ".said p{margin:0;font:13.5px/1.6 ui-monospace,SFMono-Regular,Menlo,Consolas,"
    "'DejaVu Sans Mono',monospace;white-space:pre-wrap;overflow-wrap:anywhere}\n"
    ".said p b{color:var(--accent);font-weight:600}\n"
    ".pair{padding:14px 18px}.pair+.pair{margin-top:12px}\n"
    ".pair div{display:flex;gap:14px;padding:2px 0}\n"
    ".pair dt{flex:0 0 150px;font-size:13px;line-height:1.7;color:var(--soft)}\n"
    ".pair dd{margin:0;overflow-wrap:anywhere;white-space:pre-wrap}\n"
    ".pair .last{font-weight:600}\n";

void page_begin(struct strbuf *out, const char *title)
{
    strbuf_add(out,
               "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
               "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
               "style-src 'unsafe-inline'; img-src data:\">\n"
               "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
               "<title>");
    strbuf_add_xml(out, title);
    strbuf_add(out, "</title>\n<style>\n");
    strbuf_add(out, style);
    strbuf_add(out, picture_style);
    strbuf_add(out, text_style);
    plot_style(out);
    strbuf_add(out, "</style>\n</head>\n<body>\n<main>\n");
}

void page_end(struct strbuf *out, const char *footer)
{
    strbuf_add(out, "<footer>");
    strbuf_add_xml(out, footer);
    strbuf_add(out, "</footer>\n</main>\n</body>\n</html>\n");
}

void page_section_begin(struct strbuf *out, const char *heading)
{
    strbuf_add(out, "<section>\n");
    if (!heading)
        return;
    strbuf_add(out, "<h2>");
    strbuf_add_xml(out, heading);
    strbuf_add(out, "</h2>\n");
}

void page_section_end(struct strbuf *out)
{
    strbuf_add(out, "</section>\n");
}

void page_cards_begin(struct strbuf *out)
{
    strbuf_add(out, "<div class=\"cards\">\n");
}

void page_card(struct strbuf *out, const char *name, const char *figure, const char *remark,
               const char *hover)
{
    strbuf_add(out, "<div class=\"card\"");
    if (hover) {
        strbuf_add(out, " title=\"");
        strbuf_add_xml(out, hover);
        strbuf_add(out, "\"");
    }
    strbuf_add(out, "><p>");
    strbuf_add_xml(out, name);
    strbuf_add(out, "</p><p class=\"figure\">");
    strbuf_add_xml(out, figure);
    strbuf_add(out, "</p>");
    if (remark) {
        strbuf_add(out, "<p>");
        strbuf_add_xml(out, remark);
        strbuf_add(out, "</p>");
    }
    strbuf_add(out, "</div>\n");
}

void page_cards_end(struct strbuf *out)
{
    strbuf_add(out, "</div>\n");
}

void page_plots_begin(struct strbuf *out)
{
    strbuf_add(out, "<div class=\"plots\">\n");
}

void page_plot_begin(struct strbuf *out, bool wide)
{
    strbuf_add(out, wide ? "<figure class=\"wide\">\n" : "<figure>\n");
}

void page_plot_end(struct strbuf *out)
{
    strbuf_add(out, "</figure>\n");
}

void page_plots_end(struct strbuf *out)
{
    strbuf_add(out, "</div>\n");
}

static void begin_details(struct strbuf *out, const char *tag, const char *summary)
{
    strbuf_printf(out, "%s\n<summary>", tag);
    strbuf_add_xml(out, summary);
    strbuf_add(out, "</summary>\n");
}

void page_details_begin(struct strbuf *out, const char *summary)
{
    begin_details(out, "<details>", summary);
}

void page_details_begin_open(struct strbuf *out, const char *summary)
{
    begin_details(out, "<details open=\"open\">", summary);
}

void page_details_end(struct strbuf *out)
{
    strbuf_add(out, "</details>\n");
}

void page_note(struct strbuf *out, const char *text)
{
    strbuf_add(out, "<p class=\"note\">");
    strbuf_add_xml(out, text);
    strbuf_add(out, "</p>\n");
}

void page_code(struct strbuf *out, const char *text)
{
    strbuf_add(out, "<pre>");
    strbuf_add_xml(out, text);
    strbuf_add(out, "</pre>\n");
}

/* The names that lead to a value, outermost last. */
struct trail {
    const struct trail *parent; /* NULL: the document itself */
    const char *name;
};

static void write_trail(struct strbuf *out, const struct trail *trail)
{
    if (trail->parent) {
        write_trail(out, trail->parent);
        strbuf_add(out, ".");
    }
    strbuf_add_xml(out, trail->name);
}

static bool is_compound(const struct json_value *value)
{
    return value->kind == JSON_ARRAY || value->kind == JSON_OBJECT;
}

static void write_scalar(struct strbuf *out, const struct json_value *value)
{
    switch (value->kind) {
    case JSON_BOOL:
        strbuf_add(out, value->boolean ? "yes" : "no");
        break;
    case JSON_NUMBER:
        if (value->is_integer)
            strbuf_printf(out, "%lld", (long long)value->integer);
        else
            strbuf_add_number(out, value->number);
        break;
    case JSON_STRING:
        strbuf_add_xml(out, *value->text ? value->text : "\u2013");
        break;
    default:
        strbuf_add(out, "\u2013"); /* null; an array or object without contents */
        break;
    }
}

/* Whether an array holds nothing to tell: it is empty, or all null. */
static bool is_blank(const struct json_value *array)
{
    for (size_t i = 0; i < array->count; i++) {
        if (array->items[i].kind != JSON_NULL)
            return false;
    }
    return true;
}

static void write_row(struct strbuf *out, const struct json_value *value,
                      const struct trail *trail)
{
    strbuf_add(out, "<div><dt>");
    write_trail(out, trail);
    strbuf_add(out, "</dt><dd>");
    if (value->kind == JSON_ARRAY && !is_blank(value)) {
        for (size_t i = 0; i < value->count; i++) {
            strbuf_add(out, i > 0 ? ", " : "");
            write_scalar(out, &value->items[i]);
        }
    } else {
        write_scalar(out, value);
    }
    strbuf_add(out, "</dd></div>\n");
}

static void write_setting(struct strbuf *out, const struct json_value *value,
                          const struct trail *trail)
{
    bool is_row = value->kind != JSON_OBJECT || value->count == 0;

    for (size_t i = 0; i < value->count && value->kind == JSON_ARRAY; i++)
        is_row = is_row && !is_compound(&value->items[i]);
    if (is_row) {
        write_row(out, value, trail);
        return;
    }
    for (size_t i = 0; i < value->count; i++) {
        char number[24];
        snprintf(number, sizeof number, "%zu", i);
        const struct trail inner = { .parent = trail,
                                     .name =
                                         value->kind == JSON_OBJECT ? value->keys[i] : number };
        write_setting(out, &value->items[i], &inner);
    }
}

static bool is_among(const char *name, const char *const *names)
{
    for (; *names; names++) {
        if (strcmp(name, *names) == 0)
            return true;
    }
    return false;
}

void page_settings(struct strbuf *out, const struct json_value *object,
                   const char *const *without)
{
    strbuf_add(out, "<dl class=\"settings\">\n");
    for (size_t i = 0; object && object->kind == JSON_OBJECT && i < object->count; i++) {
        const struct trail trail = { .name = object->keys[i] };
        if (!is_among(object->keys[i], without))
            write_setting(out, &object->items[i], &trail);
    }
    strbuf_add(out, "</dl>\n");
}
