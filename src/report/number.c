/* SPDX-License-Identifier: MIT */
/* number.c - numbers as people read them. */
#include "report/number.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MINUS "\u2212"
#define DASH "\u2013"

/* Outside of this range plain decimals are harder to read than powers of ten. */
static const double plain_least = 1e-4, plain_greatest = 1e6;

/* 10 to the power of the returned number is at most |value|, about; 0 and infinity count as
 * the least and the greatest double. */
static int magnitude(double value)
{
    const double size = fmin(fmax(fabs(value), DBL_TRUE_MIN), DBL_MAX);

    return (int)floor(log10(size) + 1e-9);
}

static int limit(int value, int least, int greatest)
{
    return value < least ? least : value > greatest ? greatest : value;
}

/* Drops the zeros that end a fraction, and the point if nothing is left of it. */
static void drop_zeros(char *text)
{
    if (!strchr(text, '.'))
        return;
    size_t length = strlen(text);
    while (text[length - 1] == '0')
        length--;
    if (text[length - 1] == '.')
        length--;
    text[length] = '\0';
}

static void print_superscript(char out[NUMBER_TEXT], int exponent)
{
    static const char *const digits[] = { "\u2070", "\u00b9", "\u00b2", "\u00b3", "\u2074",
                                          "\u2075", "\u2076", "\u2077", "\u2078", "\u2079" };
    char plain[16];
    size_t length = 0;

    snprintf(plain, sizeof plain, "%d", exponent);
    for (const char *c = plain; *c; c++) {
        const char *glyph = *c == '-' ? "\u207b" : digits[*c - '0'];
        length += (size_t)snprintf(out + length, NUMBER_TEXT - length, "%s", glyph);
    }
}

/* 2.5×10⁻⁵; significant digits as told. */
static void print_power(char out[NUMBER_TEXT], double value, int digits)
{
    char text[40], power[NUMBER_TEXT];
    int exponent = 0;

    snprintf(text, sizeof text, "%.*e", limit(digits, 1, 15) - 1, fabs(value));
    char *e = strchr(text, 'e');
    sscanf(e, "e%d", &exponent);
    *e = '\0';
    drop_zeros(text);
    print_superscript(power, exponent);
    const char *sign = value < 0 ? MINUS : "";
    if (strcmp(text, "1") == 0)
        snprintf(out, NUMBER_TEXT, "%s10%.30s", sign, power);
    else
        snprintf(out, NUMBER_TEXT, "%s%.20s\u00d710%.30s", sign, text, power);
}

/* A fixed number of decimals, then the unit. */
static void print_decimals(char out[NUMBER_TEXT], double value, int decimals, bool trim,
                           const char *unit)
{
    char text[40];

    snprintf(text, sizeof text, "%.*f", limit(decimals, 0, 12), fabs(value));
    if (trim)
        drop_zeros(text);
    const bool is_zero = strspn(text, "0.") == strlen(text);
    snprintf(out, NUMBER_TEXT, "%s%.39s%s", value < 0 && !is_zero ? MINUS : "", text, unit);
}

/* Decimals that tell apart ticks `step` apart; for a lone figure, four digits. */
static int decimals_for(double value, double step)
{
    if (step > 0)
        return -magnitude(step);
    return value == 0 ? 0 : 3 - magnitude(value);
}

static void print_plain(char out[NUMBER_TEXT], double value, double step)
{
    const double size = fabs(value);
    const bool too_large = size >= plain_greatest;
    const bool too_small = value != 0 && (step > 0 ? step < plain_least : size < plain_least);

    if (value == 0) {
        snprintf(out, NUMBER_TEXT, "0");
    } else if (too_large || too_small) {
        const int digits = step > 0 ? magnitude(value) - magnitude(step) + 1 : 4;
        if (digits > 6 && size < 1e15 && step >= 1e-12)
            print_decimals(out, value, decimals_for(value, step), false, "");
        else
            print_power(out, value, digits);
    } else {
        print_decimals(out, value, decimals_for(value, step),
                       value == floor(value) && step == 0, "");
    }
}

static void print_si(char out[NUMBER_TEXT], double value, double step)
{
    static const char *const prefixes[] = { "", "k", "M", "G", "T" };
    const double size = fabs(value);
    int thousands = 0;
    double unit = 1;

    while (thousands < 4 && size >= unit * 999.5) {
        thousands++;
        unit *= 1000;
    }
    if (thousands == 0 || size >= unit * 1e4) { /* small, or beyond the prefixes */
        print_plain(out, value, step);
        return;
    }
    const int decimals = step > 0 ? -magnitude(step / unit) : 2 - magnitude(value / unit);
    print_decimals(out, value / unit, decimals, true, prefixes[thousands]);
}

void number_print(char out[NUMBER_TEXT], double value, enum number_format format, double step)
{
    if (!isfinite(value)) {
        snprintf(out, NUMBER_TEXT, DASH);
        return;
    }
    switch (format) {
    case NUMBER_PLAIN:
        print_plain(out, value, step);
        break;
    case NUMBER_SI:
        print_si(out, value, step);
        break;
    case NUMBER_PERCENT:
        if (fabs(value) < 1e4)
            print_decimals(out, value * 100, step > 0 ? decimals_for(0, step * 100) : 2,
                           value == 0 || value == 1, "%");
        else
            print_plain(out, value, step);
        break;
    }
}

void number_whole(char out[NUMBER_TEXT], double value)
{
    char digits[32];

    if (!isfinite(value) || fabs(value) >= 1e15) {
        number_print(out, value, NUMBER_PLAIN, 0);
        return;
    }
    snprintf(digits, sizeof digits, "%.0f", fabs(value));
    const size_t count = strlen(digits);
    size_t length = 0;
    if (value < 0 && strcmp(digits, "0") != 0)
        length = (size_t)snprintf(out, NUMBER_TEXT, MINUS);
    for (size_t i = 0; i < count; i++) {
        if (i > 0 && (count - i) % 3 == 0)
            out[length++] = ',';
        out[length++] = digits[i];
    }
    out[length] = '\0';
}

void number_bytes(char out[NUMBER_TEXT], double bytes)
{
    static const char *const units[] = { " B", " KiB", " MiB", " GiB", " TiB" };
    int at = 0;

    if (!isfinite(bytes) || bytes < 0 || bytes >= 0x1p60) {
        number_print(out, bytes, NUMBER_PLAIN, 0);
        return;
    }
    while (at < 4 && bytes >= 1024) {
        bytes /= 1024;
        at++;
    }
    print_decimals(out, bytes, bytes == 0 ? 0 : 2 - magnitude(bytes), true, units[at]);
}

void number_duration(char out[NUMBER_TEXT], double seconds)
{
    if (!isfinite(seconds) || seconds < 0 || seconds >= 1e12) {
        number_print(out, seconds, NUMBER_PLAIN, 0);
    } else if (seconds < 1e-3) {
        print_decimals(out, seconds * 1e6, seconds < 1e-5 ? 1 : 0, true, " \u00b5s");
    } else if (seconds < 1) {
        print_decimals(out, seconds * 1e3, seconds < 0.1 ? 1 : 0, true, " ms");
    } else if (seconds < 99.95) {
        print_decimals(out, seconds, seconds < 10 ? 2 : 1, false, " s");
    } else {
        const long long whole = (long long)(seconds + 0.5);
        if (whole < 3600)
            snprintf(out, NUMBER_TEXT, "%lld min %02lld s", whole / 60, whole % 60);
        else if (whole < 48 * 3600LL)
            snprintf(out, NUMBER_TEXT, "%lld h %02lld min", whole / 3600, whole / 60 % 60);
        else
            snprintf(out, NUMBER_TEXT, "%lld d %02lld h", whole / 86400, whole / 3600 % 24);
    }
}

void number_clock(char out[NUMBER_TEXT], double seconds)
{
    if (!isfinite(seconds) || seconds < 0 || seconds >= 1e9) {
        snprintf(out, NUMBER_TEXT, "-:--"); /* ASCII: it goes to terminals, too */
        return;
    }
    const long long whole = (long long)(seconds + 0.5);
    if (whole < 3600)
        snprintf(out, NUMBER_TEXT, "%lld:%02lld", whole / 60, whole % 60);
    else if (whole < 48 * 3600LL)
        snprintf(out, NUMBER_TEXT, "%lld:%02lld:%02lld", whole / 3600, whole / 60 % 60,
                 whole % 60);
    else
        snprintf(out, NUMBER_TEXT, "%lldd %02lldh", whole / 86400, whole / 3600 % 24);
}
