/* SPDX-License-Identifier: MIT */
/* my_autoencoder.c - a model without classes: tutti train examples/my_autoencoder.c --data fashion-mnist
 *
 * It squeezes images of 28x28 through 32 numbers and gives them back; the report shows how well.
 */
#include <tutti.h>

static struct tutti_value *my_autoencoder(struct tutti_graph *g, struct tutti_value *x,
                                          int classes)
{
    (void)classes; /* labels are not looked at */
    x = tutti_relu(g, "relu1", tutti_linear(g, "down1", x, 128));
    x = tutti_relu(g, "relu2", tutti_linear(g, "down2", x, 32));
    x = tutti_relu(g, "relu3", tutti_linear(g, "up1", x, 128));
    return tutti_reconstruction(g, tutti_linear(g, "up2", x, 28L * 28));
}

TUTTI_MODEL(my_autoencoder)
