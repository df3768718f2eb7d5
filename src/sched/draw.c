/* SPDX-License-Identifier: MIT */
/* draw.c - a step program as JSON, and as a picture.
 *
 * The picture has a column for each place. A task stands below those that it waits for and below
 * those that its place runs before; a line leads to it from each. What it waits for of the step
 * before is written beside it. Classes of CSS begin with "tp-".
 */
#include <string.h>

#include "base/mem.h"
#include "sched/program.h"
#include "sched/work.h"

/* JSON --------------------------------------------------------------------------------------- */

static void print_number_or_null(struct strbuf *out, const char *name, int number)
{
    if (number < 0)
        strbuf_printf(out, ", \"%s\": null", name);
    else
        strbuf_printf(out, ", \"%s\": %d", name, number);
}

static void print_waits(const struct program *program, const struct task *task,
                        struct strbuf *out)
{
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        strbuf_printf(out,
                      "%s{\"task\": %d, \"of\": \"%s\", \"by\": \"%s\", "
                      "\"before\": \"%s\"",
                      i ? ", " : "", wait->task,
                      wait->is_apart       ? "any step"
                      : wait->earlier      ? "earlier step"
                      : wait->is_last_step ? "last step"
                      : wait->is_last_use  ? "last use"
                      : wait->by_use       ? "this use"
                                           : "this step",
                      wait->by_medium  ? "server"
                      : wait->is_local ? "member"
                                       : "members",
                      wait->at_end ? "end" : "start");
        if (wait->earlier > 0)
            strbuf_printf(out, ", \"steps\": %d", wait->earlier + 1);
        if (wait->but > 0)
            strbuf_printf(out, ", \"but\": %d", wait->but);
        strbuf_add(out, "}");
    }
}

static void print_accesses(const struct task *task, bool is_write, struct strbuf *out)
{
    const char *before = "";

    for (int i = 0; i < task->n_accesses; i++) {
        const struct access *a = &task->accesses[i];
        if (a->is_write != is_write)
            continue;
        strbuf_printf(out, "%s{\"memory\": \"%s\", \"index\": %d, \"own\": %s}", before,
                      memory_name(a->memory), a->index,
                      a->reach == REACH_OWN ? "true" : "false");
        before = ", ";
    }
}

static void print_task(const struct program *program, int t, const struct task_work *works,
                       struct strbuf *out)
{
    const struct task *task = &program->tasks[t];
    struct strbuf name;

    strbuf_init(&name, 256);
    task_print_name(task, &name);
    strbuf_printf(out, "{\"task\": %d, \"name\": ", t);
    strbuf_add_json(out, name.text);
    strbuf_release(&name);
    strbuf_printf(out, ", \"kind\": \"%s\", \"place\": \"%s\", \"medium\": \"%s\"",
                  task_kind_name(task->kind), task_place_name(task->place),
                  task_medium_name(task->medium));
    print_number_or_null(out, "bucket", task->bucket);
    print_number_or_null(out, "table", task->gather);
    if (task->place == PLACE_SERVER)
        print_number_or_null(out, "slice", task->slice);
    print_number_or_null(out, "rail", task->rail);
    strbuf_printf(out, ", \"between\": %s", task->place == PLACE_HOST ? "true" : "false");
    if (task->medium == MEDIUM_SERVER || task->place == PLACE_SERVER)
        strbuf_add(out, ", \"bytes\": null");
    else
        strbuf_printf(out, ", \"bytes\": %.0f", task_bytes(&works[t]));
    strbuf_printf(out, ", \"members\": %d, \"once\": %s, \"nodes\": [%d, %d], \"waits\": [",
                  task->members, task->place != PLACE_LANE || task->is_once ? "true" : "false",
                  task->first_node, task->end_node);
    print_waits(program, task, out);
    strbuf_add(out, "], \"reads\": [");
    print_accesses(task, false, out);
    strbuf_add(out, "], \"writes\": [");
    print_accesses(task, true, out);
    strbuf_add(out, "]}");
}

void program_print_json(const struct program *program, const struct task_work *works,
                        struct strbuf *out)
{
    const char *before = "\n";

    strbuf_add(out, "{\"tasks\": [");
    for (int t = 0; t < program->n_tasks; t++) {
        if (!task_is_listed(&program->tasks[t]))
            continue;
        strbuf_add(out, before);
        print_task(program, t, works, out);
        before = ",\n";
    }
    strbuf_add(out, "\n]}\n");
}

/* The picture -------------------------------------------------------------------------------- */

enum { BOX_WIDTH = 290, BOX_HEIGHT = 34, COLUMN = 370, ROW = 48, MARGIN = 24, TOP = 96 };

static const char style[] = "<style>\n"
                            ".tp-program{background:#fff;font-family:system-ui,-apple-system,'"
                            "Segoe UI',Roboto,sans-serif}"
                            "\n"
                            ".tp-paper{fill:#fff}\n"
                            ".tp-program text{fill:#1b1f24;font-size:12px}\n"
                            ".tp-program .tp-heading{font-size:16px;font-weight:600}\n"
                            ".tp-program .tp-soft{fill:#59636e;font-size:10px}\n"
                            ".tp-box{stroke-width:1.2;fill:#f1f3f5;stroke:#a8b1ba}\n"
                            ".tp-compute .tp-box{fill:#dcecf8;stroke:#0072b2}\n"
                            ".tp-sum .tp-box{fill:#d6f0e6;stroke:#00805d}\n"
                            ".tp-move .tp-box{fill:#fdeccc;stroke:#c77d00}\n"
                            ".tp-update .tp-box{stroke-width:2.6;stroke:#b0568b}\n"
                            ".tp-edge{fill:none;stroke:#8c959f;stroke-width:1.3}\n"
                            ".tp-head{fill:#8c959f}\n"
                            "@media (prefers-color-scheme:dark){\n"
                            ".tp-program{background:#1a1e25}\n"
                            ".tp-paper{fill:#1a1e25}\n"
                            ".tp-program text{fill:#e8ebef}\n"
                            ".tp-program .tp-soft{fill:#a9b2bd}\n"
                            ".tp-box{fill:#262c34;stroke:#5d6772}\n"
                            ".tp-compute .tp-box{fill:#12344d;stroke:#56b4e9}\n"
                            ".tp-sum .tp-box{fill:#10392e;stroke:#2fc79a}\n"
                            ".tp-move .tp-box{fill:#453212;stroke:#e69f00}\n"
                            ".tp-update .tp-box{stroke:#e08bbb}\n"
                            ".tp-edge{stroke:#79838f}\n"
                            ".tp-head{fill:#79838f}}\n"
                            "</style>\n";

static const char *class_of(const struct task *task)
{
    static const char *const classes[TASK_KINDS] = {
        [TASK_COMPUTE] = "tp-compute",    [TASK_COPY] = "tp-compute",
        [TASK_COLUMNS] = "tp-compute",    [TASK_CLIP] = "tp-compute",
        [TASK_SEND] = "tp-move",          [TASK_RECEIVE] = "tp-move",
        [TASK_TENSOR] = "tp-move",        [TASK_UNSHARD] = "tp-move",
        [TASK_ANSWER] = "tp-move",        [TASK_RESHARD] = "tp-move",
        [TASK_PUSH] = "tp-move",          [TASK_PULL] = "tp-move",
        [TASK_ALL_GATHER] = "tp-move",    [TASK_ACCUMULATE] = "tp-sum",
        [TASK_REDUCE_SCATTER] = "tp-sum", [TASK_SUM_FACTORS] = "tp-sum",
        [TASK_SUM_ROWS] = "tp-sum",       [TASK_NORM] = "tp-sum",
        [TASK_ALL_REDUCE] = "tp-sum",     [TASK_DIRECTION] = "tp-update",
        [TASK_UPDATE] = "tp-update",      [TASK_BARRIER] = "tp-barrier",
        [TASK_AVERAGE] = "tp-move",       [TASK_REPLICATE] = "tp-move",
    };

    return classes[task->kind];
}

struct picture {
    const struct program *program;
    int *row; /* of each task */
    int rows, column[PLACES], columns;
};

static void place_tasks(struct picture *picture)
{
    const struct program *program = picture->program;
    int last[PLACES]; /* row that a column has been filled to */
    bool is_used[PLACES] = { false };

    for (int place = 0; place < PLACES; place++)
        last[place] = -1;
    for (int t = 0; t < program->n_tasks; t++) {
        const struct task *task = &program->tasks[t];
        int row = last[task->place] + 1;
        if (!task_is_listed(task))
            continue;
        for (int i = 0; i < task->n_waits; i++) {
            const struct wait *wait = &program->waits[task->first_wait + i];
            if (!wait->is_last_step && !wait->is_apart && picture->row[wait->task] >= row)
                row = picture->row[wait->task] + 1;
        }
        picture->row[t] = last[task->place] = row;
        picture->rows = row >= picture->rows ? row + 1 : picture->rows;
        is_used[task->place] = true;
    }
    for (int place = 0; place < PLACES; place++) {
        picture->column[place] = picture->columns;
        picture->columns += is_used[place];
    }
}

static int x_of(const struct picture *picture, const struct task *task)
{
    return MARGIN + picture->column[task->place] * COLUMN;
}

static int y_of(const struct picture *picture, int t)
{
    return TOP + picture->row[t] * ROW;
}

/* Down within a column; else from the side of one box to the side of the other. */
static void draw_edge(const struct picture *picture, int from, int to, struct strbuf *out)
{
    const struct task *a = &picture->program->tasks[from], *b = &picture->program->tasks[to];
    const int y0 = y_of(picture, from), y1 = y_of(picture, to);
    const int x0 = x_of(picture, a), x1 = x_of(picture, b);
    const int middle = y1 + BOX_HEIGHT / 2;

    strbuf_add(out, "<path class=\"tp-edge\" marker-end=\"url(#tp-arrow)\" d=\"");
    if (x0 == x1) {
        strbuf_printf(out, "M%d %dC%d %d %d %d %d %d", x0 + BOX_WIDTH, y0 + BOX_HEIGHT / 2,
                      x0 + BOX_WIDTH + 30, y0 + BOX_HEIGHT / 2, x0 + BOX_WIDTH + 30, middle,
                      x0 + BOX_WIDTH, middle);
    } else {
        const int begin = x1 > x0 ? x0 + BOX_WIDTH : x0, end = x1 > x0 ? x1 : x1 + BOX_WIDTH;
        const int turn = x1 > x0 ? 40 : -40;
        strbuf_printf(out, "M%d %dC%d %d %d %d %d %d", begin, y0 + BOX_HEIGHT / 2, begin + turn,
                      y0 + BOX_HEIGHT / 2, end - turn, middle, end, middle);
    }
    strbuf_add(out, "\"/>\n");
}

static void draw_edges(const struct picture *picture, struct strbuf *out)
{
    const struct program *program = picture->program;

    for (int t = 0; t < program->n_tasks; t++) {
        int drawn = -1; /* a start and an end may wait for one task */
        for (int i = 0; i < program->tasks[t].n_waits; i++) {
            const struct wait *wait = &program->waits[program->tasks[t].first_wait + i];
            if (!wait->is_last_step && !wait->is_apart && wait->task != drawn)
                draw_edge(picture, wait->task, t, out);
            drawn = wait->task;
        }
    }
}

/* "shared, 4 members, after 11 of the last step" */
static void draw_facts(const struct program *program, const struct task *task,
                       struct strbuf *out)
{
    const char *before = ", after ";

    strbuf_printf(out, "%s%s%d member%s",
                  task->medium == MEDIUM_NONE ? "" : task_medium_name(task->medium),
                  task->medium == MEDIUM_NONE ? "" : ", ", task->members,
                  task->members == 1 ? "" : "s");
    if (task->rail >= 0)
        strbuf_printf(out, ", rail %d", task->rail);
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (!wait->is_last_step || wait->earlier > 0)
            continue;
        strbuf_printf(out, "%s%d", before, wait->task);
        before = " and ";
    }
    if (strcmp(before, " and ") == 0)
        strbuf_add(out, " of the last step");
    for (int i = 0; i < task->n_waits; i++) {
        const struct wait *wait = &program->waits[task->first_wait + i];
        if (wait->earlier > 0)
            strbuf_printf(out, ", after %d of %d steps before", wait->task, wait->earlier + 1);
        if (wait->is_apart)
            strbuf_printf(out, ", not during %d", wait->task);
    }
}

static void draw_task(const struct picture *picture, int t, struct strbuf *out)
{
    const struct task *task = &picture->program->tasks[t];
    const int x = x_of(picture, task), y = y_of(picture, t);
    struct strbuf name;

    strbuf_init(&name, 256);
    task_print_name(task, &name);
    const bool updates = task->does >> TASK_UPDATE & 1;
    strbuf_printf(out, "<g class=\"%s%s\"><title>", class_of(task),
                  updates ? " tp-update" : "");
    strbuf_add_xml(out, name.text);
    strbuf_printf(out,
                  "</title><rect class=\"tp-box\" x=\"%d\" y=\"%d\" width=\"%d\" "
                  "height=\"%d\" rx=\"5\"/><text x=\"%d\" y=\"%d\">%d ",
                  x, y, BOX_WIDTH, BOX_HEIGHT, x + 8, y + 14, t);
    strbuf_add_xml(out, name.text);
    strbuf_printf(out, "</text><text class=\"tp-soft\" x=\"%d\" y=\"%d\">", x + 8, y + 28);
    draw_facts(picture->program, task, out);
    strbuf_add(out, "</text></g>\n");
    strbuf_release(&name);
}

static void draw(const struct picture *picture, const char *title, struct strbuf *out)
{
    static const char *const headings[PLACES] = { "lanes: forward and backward",
                                                  "lanes: synchronization",
                                                  "inter-node threads", "between steps",
                                                  "parameter server" };
    const struct program *program = picture->program;
    const int width = 2 * MARGIN + picture->columns * COLUMN;
    const int height = TOP + picture->rows * ROW + MARGIN;

    strbuf_printf(out,
                  "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"tp-program\" role=\"img\" "
                  "width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\">\n<title>step program of ",
                  width, height, width, height);
    strbuf_add_xml(out, title);
    strbuf_add(out, "</title>\n");
    strbuf_add(out, style);
    strbuf_add(out, "<defs><marker id=\"tp-arrow\" viewBox=\"0 0 8 8\" refX=\"7.5\" refY=\"4\" "
                    "markerWidth=\"8\" markerHeight=\"8\" markerUnits=\"userSpaceOnUse\" "
                    "orient=\"auto\"><path class=\"tp-head\" d=\"M0 .8L8 4L0 7.2z\"/></marker>"
                    "</defs>\n");
    strbuf_printf(out, "<rect class=\"tp-paper\" width=\"%d\" height=\"%d\"/>\n", width,
                  height);
    strbuf_printf(out, "<text class=\"tp-heading\" x=\"%d\" y=\"34\">", MARGIN);
    strbuf_add_xml(out, title);
    strbuf_add(out, "</text>\n");
    for (int place = 0; place < PLACES; place++) {
        const bool is_used = place + 1 < PLACES
                                 ? picture->column[place + 1] > picture->column[place]
                                 : picture->columns > picture->column[place];
        if (is_used)
            strbuf_printf(out, "<text x=\"%d\" y=\"70\">%s</text>\n",
                          MARGIN + picture->column[place] * COLUMN, headings[place]);
    }
    draw_edges(picture, out);
    for (int t = 0; t < program->n_tasks; t++) {
        if (task_is_listed(&program->tasks[t]))
            draw_task(picture, t, out);
    }
    strbuf_add(out, "</svg>\n");
}

void program_print_svg(const struct program *program, const char *title, struct strbuf *out)
{
    struct picture picture = { .program = program };
    const enum status status =
        mem_alloc((size_t)program->n_tasks + 1, sizeof *picture.row, &picture.row);

    if (status != STATUS_OK) {
        out->status = out->status == STATUS_OK ? status : out->status;
        return;
    }
    place_tasks(&picture);
    draw(&picture, title, out);
    mem_free(picture.row);
}
