/* SPDX-License-Identifier: MIT */
/* my_model.c - a model of one's own: tutti train examples/my_model.c --data fashion-mnist
 *
 * A small convolutional network with a skip connection.
 */
#include <tutti.h>

static struct tutti_value *my_model(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    x = tutti_relu(g, "relu1", tutti_conv2d(g, "conv1", x, 16, 3, 1, 1));
    x = tutti_max_pool(g, "pool1", x, 2, 2, 0);

    struct tutti_value *y = tutti_relu(g, "relu2", tutti_conv2d(g, "conv2", x, 16, 3, 1, 1));
    x = tutti_add(g, "skip", x, y);
    x = tutti_avg_pool(g, "pool2", x, 2, 2, 0);

    x = tutti_relu(g, "relu3", tutti_linear(g, "fc1", tutti_flatten(g, "flat", x), 64));
    return tutti_linear(g, "fc2", tutti_dropout(g, "drop", x, 0.1F), classes);
}

TUTTI_MODEL(my_model)
