/* SPDX-License-Identifier: MIT */
/* table_known.c - tables that have names: their files and what their columns mean.
 *
 * Of heart-disease those with 14 columns are read. A cholesterol or a blood pressure of 0 is no measurement: all of
 * Switzerland's cholesterol is 0. Centers and scales are what a physician would guess.
 */
#include "data/fetch.h"
#include "data/table_format.h"

static const char *const HEART_CLASSES[] = { "healthy", "disease" };

static const struct table_files HEART_FILES = {
    .files = { "processed.cleveland.data", "processed.hungarian.data",
               "processed.switzerland.data", "processed.va.data" },
    .parts = { "cleveland", "hungarian", "switzerland", "va" },
    .schema =
        "{\"columns\": ["
        "{\"name\": \"age\", \"center\": 50, \"scale\": 10},"
        "{\"name\": \"sex\", \"categories\": [\"0\", \"1\"]},"
        "{\"name\": \"cp\", \"categories\": [\"1\", \"2\", \"3\", \"4\"]},"
        "{\"name\": \"trestbps\", \"center\": 130, \"scale\": 20, \"gaps\": true,"
        " \"missing\": [\"0\"]},"
        "{\"name\": \"chol\", \"center\": 240, \"scale\": 50, \"gaps\": true,"
        " \"missing\": [\"0\"]},"
        "{\"name\": \"fbs\", \"categories\": [\"0\", \"1\"]},"
        "{\"name\": \"restecg\", \"categories\": [\"0\", \"1\", \"2\"]},"
        "{\"name\": \"thalach\", \"center\": 140, \"scale\": 25, \"gaps\": true},"
        "{\"name\": \"exang\", \"categories\": [\"0\", \"1\"]},"
        "{\"name\": \"oldpeak\", \"center\": 1, \"gaps\": true},"
        "{\"name\": \"slope\", \"categories\": [\"1\", \"2\", \"3\"], \"missing\": [\"0\"]},"
        "{\"name\": \"ca\", \"categories\": [\"0\", \"1\", \"2\", \"3\"],"
        " \"missing\": [\"9\"]},"
        "{\"name\": \"thal\", \"categories\": [\"3\", \"6\", \"7\"]},"
        "{\"name\": \"num\"}],"
        "\"label\": {\"column\": \"num\", \"classes\": ["
        "{\"name\": \"healthy\", \"values\": [\"0\"]},"
        "{\"name\": \"disease\", \"values\": [\"1\", \"2\", \"3\", \"4\"]}]}}",
};

static const struct dataset_source HEART_SOURCE = {
    .address = "https://archive.ics.uci.edu/ml/machine-learning-databases/heart-disease/",
    .files = {
        { "processed.cleveland.data", 18461,
          "a74b7efa387bc9d108d7d0115d831fe9b414b29ae7124f331b622b4efa0427c8" },
        { "processed.hungarian.data", 10263,
          "d1ad108f785768cd3d7e82dc522e6f5a61eea93cccfb3a46ee8076f73fc3d796" },
        { "processed.switzerland.data", 4109,
          "834a405ccf5b66ab4056bb77794adc8df0b7125186454c0a1d002d33c6c3b314" },
        { "processed.va.data", 6737,
          "e7c93d8d0d2acdadfa4c5e8de768e2191e7f618b952e29623f1f0d5949ff6b8f" },
    },
};

const struct dataset_info table_heart_disease = {
    .name = "heart-disease",
    .title = "Heart disease of patients of four hospitals (UCI; Janosi, Steinbrunn, Pfisterer, "
             "Detrano)",
    .format = "csv",
    .train_count = 733,
    .test_count = 187,
    .sample = { 1, { 32 } },
    .classes = 2,
    .class_names = HEART_CLASSES,
    .source = &HEART_SOURCE,
    .table = &HEART_FILES,
};

static const char *const TUMOUR_CLASSES[] = { "benign", "malignant" };

#define MEASURE(name, center, scale)                                                           \
    ",{\"name\": \"" name "\", \"center\": " #center ", \"scale\": " #scale "}"
/* Three figures of each nucleus: mean, standard error, worst. */
#define MEASURES(which)                                                                        \
    MEASURE("radius_" which, 14, 4)                                                            \
    MEASURE("texture_" which, 20, 5)                                                           \
    MEASURE("perimeter_" which, 90, 30)                                                        \
    MEASURE("area_" which, 700, 400)                                                           \
    MEASURE("smoothness_" which, 0.1, 0.02)                                                    \
    MEASURE("compactness_" which, 0.1, 0.1)                                                    \
    MEASURE("concavity_" which, 0.1, 0.1)                                                      \
    MEASURE("concave_points_" which, 0.05, 0.05)                                               \
    MEASURE("symmetry_" which, 0.2, 0.05)                                                      \
    MEASURE("fractal_dimension_" which, 0.06, 0.02)

static const struct table_files TUMOUR_FILES = {
    .files = { "wdbc.data" },
    .schema =
        "{\"columns\": [{\"name\": \"id\", \"skip\": true}, {\"name\": \"diagnosis\"}" MEASURES(
            "mean") MEASURES("error")
            MEASURES("worst") "],"
                              "\"label\": {\"column\": \"diagnosis\", \"classes\": ["
                              "{\"name\": \"benign\", \"values\": [\"B\"]},"
                              "{\"name\": \"malignant\", \"values\": [\"M\"]}]}}",
};

static const struct dataset_source TUMOUR_SOURCE = {
    .address = "https://archive.ics.uci.edu/ml/machine-learning-databases/breast-cancer-wisconsin/",
    .files = {
        { "wdbc.data", 124103,
          "d606af411f3e5be8a317a5a8b652b425aaf0ff38ca683d5327ffff94c3695f4a" },
    },
};

const struct dataset_info table_breast_cancer = {
    .name = "breast-cancer-wisconsin",
    .other_names = { "wdbc" },
    .title = "Nuclei of cells of breast tumours, 30 measures each (UCI; Wolberg, Street, "
             "Mangasarian)",
    .format = "csv",
    .train_count = 454,
    .test_count = 115,
    .sample = { 1, { 30 } },
    .classes = 2,
    .class_names = TUMOUR_CLASSES,
    .source = &TUMOUR_SOURCE,
    .table = &TUMOUR_FILES,
};

static const char *const INCOME_CLASSES[] = { "-1", "+1" };

static const struct table_files INCOME_FILES = {
    .is_libsvm = true, .files = { "a9a" }, .test = "a9a.t", .features = 123
};

static const struct dataset_source INCOME_SOURCE = {
    .address = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/",
    .files = {
        { "a9a", 2329875,
          "f5d5ffd8d865ff41328e7ee043e4b020816914ff6843ff15b98905ddbedce906" },
        { "a9a.t", 1164628,
          "1f448a153f0320399a7e40836eb207655b0bde0f21fc941cc472193daa9f5de9" },
    },
};

const struct dataset_info table_a9a = {
    .name = "a9a",
    .title = "Adult: who earns more than 50,000 dollars, 123 features of 0 and 1 (LIBSVM)",
    .format = "libsvm",
    .train_count = 32561,
    .test_count = 16281,
    .sample = { 1, { 123 } },
    .classes = 2,
    .class_names = INCOME_CLASSES,
    .source = &INCOME_SOURCE,
    .table = &INCOME_FILES,
};
