#!/usr/bin/env bash
# library.sh - a model file of the user's, and a program that links the installed library. $3: build folder.
. "$(dirname "$0")/lib.sh"
build=$3
need_data fashion-mnist

"$tutti" train "$root/examples/my_model.c" --data fashion-mnist --steps 30 --limit 2000 --quiet --out user || complain "user's model"
grep -q conv2.weight <(strings -n 6 user/checkpoint/step-*/weights.safetensors) || complain "user's model: no conv2.weight"
"$tutti" train "$root/examples/my_model.c" --data fashion-mnist --steps 30 --limit 2000 --quiet -n 2 --threads 1 --out user2 || complain "user's model on two ranks"
"$tutti" eval user >/dev/null || complain "eval of a user's model"
printf '#include <tutti.h>\nint main(void) { return nothing; }\n' >broken.c
"$tutti" train broken.c --out broken >/dev/null 2>err.txt && complain "a broken model file is accepted"
grep -q '^tutti: broken.c does not compile' err.txt || complain "broken model: $(tail -1 err.txt)"
# What a typo is, the compiler and the linker say, with file and line.
cat >typo.c <<'C'
#include <tutti.h>
static struct tutti_value *model(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    return tutti_lineer(g, "fc", x, classes);
}
TUTTI_MODEL(model)
C
"$tutti" train typo.c --out typo >/dev/null 2>err.txt && complain "a typo is accepted"
grep -q "^typo.c:4:.*tutti_lineer" err.txt || complain "a typo: no file and line: $(cat err.txt)"
sed -i 's/return tutti_lineer/struct tutti_value *missing(void);\n    (void)missing();\n    return tutti_linear/' typo.c
"$tutti" train typo.c --out typo >/dev/null 2>err.txt && complain "a function that nothing defines is accepted"
grep -q "typo.c:5:.*missing" err.txt || complain "an undefined function: no file and line: $(cat err.txt)"
grep -q '^tutti: typo.c uses what no file defines' err.txt || complain "an undefined function: $(tail -1 err.txt)"

# A run's folder has its model: it is used where the original is not, from another folder.
mkdir model elsewhere
cp "$root/examples/my_model.c" model/
for place in "${TUTTI_DATA:-/none}" /usr/share/datasets; do
    [ -d "$place/fashion-mnist" ] && cp -rL "$place/fashion-mnist" own-data && break
done
small="--data ./own-data --limit 1000 --batch 50 --shards 2 --quiet"
"$tutti" train model/my_model.c $small --steps 20 --out whole || complain "a run of a model file"
"$tutti" train model/my_model.c $small --steps 10 --out parts || complain "a run of a model file, part 1"
cmp -s parts/model.c model/my_model.c || complain "a run's folder has no copy of its model file"
rm -r model/my_model.c
mv parts elsewhere/moved
(cd elsewhere && "$tutti" eval moved >/dev/null && "$tutti" train --resume moved --steps 20 --quiet) || complain "a run that was moved, without its model file"
same "a run that was moved and resumed" whole elsewhere/moved
cp "$root/examples/my_model.c" model/
"$tutti" eval elsewhere/moved >/dev/null 2>err.txt || complain "eval of a moved run"
[ -s err.txt ] && complain "eval of a moved run whose original is as it was: $(cat err.txt)"
echo '/* changed */' >>model/my_model.c
"$tutti" eval elsewhere/moved >/dev/null 2>err.txt || complain "eval of a run whose model file has changed"
grep -q "^warning: .*my_model.c has changed.*own copy" err.txt || complain "a model file that has changed: $(cat err.txt)"
cp "$root/examples/my_model.c" model/
mv own-data own-data-moved
refused 1 'own-data is not there.*--data' "$tutti" eval elsewhere/moved
"$tutti" eval elsewhere/moved --data ./own-data-moved >/dev/null || complain "eval with data that were moved"
mv own-data-moved own-data
"$tutti" graph model/my_model.c --after model --format json >own.json
"$tutti" train own.json $small --steps 20 --out elsewhere/graph || complain "a run of a graph file"
cmp -s own.json elsewhere/graph/model.json || complain "a run's folder has no copy of its graph file"
rm own.json
(cd elsewhere && "$tutti" eval graph >/dev/null) || complain "eval of a run without its graph file"
same "model file and graph file" whole elsewhere/graph
sed 's/"relu1"/"the first relu"/' "$root/examples/my_model.c" >spaces.c # a name that no graph file has
"$tutti" train spaces.c $small --steps 10 --out spaces || complain "a layer with a long name"
rm spaces.c
mv spaces elsewhere/ && (cd elsewhere && "$tutti" eval spaces >/dev/null) || complain "eval of a run without graph file and source"
rm elsewhere/moved/model.json
refused 1 'model.json is not there' "$tutti" eval elsewhere/moved

# What the loss does not depend on is not trained, and saved as it began, the same for all layouts.
cat >unused.c <<'C'
#include <tutti.h>
static struct tutti_value *unused(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    x = tutti_max_pool(g, "pool", tutti_relu(g, "relu", tutti_conv2d(g, "conv", x, 8, 3, 1, 1)), 4, 4, 0);
    struct tutti_value *flat = tutti_flatten(g, "flat", x);
    (void)tutti_linear(g, "aux2", tutti_relu(g, "aux", tutti_linear(g, "aux1", flat, 10)), 5);
    return tutti_linear(g, "fc", flat, classes);
}
TUTTI_MODEL(unused)
C
sed /aux/d unused.c >used.c
small="--data fashion-mnist --limit 400 --batch 40 --steps 10 --shards 4 --threads 1 --optimizer adamw --quiet"
"$tutti" train used.c $small --out used || complain "a model without what is not used"
"$tutti" train unused.c $small --out unused 2>err.txt || complain "a parameter that does not reach the loss: $(cat err.txt)"
[ "$(cat err.txt)" = "warning: the loss does not depend on aux1.weight, aux1.bias, aux2.weight, aux2.bias: they stay as initialized" ] ||
    complain "unused parameters are not named: $(cat err.txt)"
number=0
for layout in "--strategy mirrored" "--split dp=2,zero=3 --flat" "--strategy pipeline" "--strategy ps --meet ps:2"; do
    number=$((number + 1))
    "$tutti" train unused.c $small -n 2 $layout --out unused-$number 2>/dev/null || complain "unused parameters with $layout"
    cmp unused/checkpoint/step-*/weights.safetensors unused-$number/checkpoint/step-*/weights.safetensors ||
        complain "unused parameters with $layout: other weights"
done
same "a model with and without what is not used" used unused
"$tutti" eval unused-3 >/dev/null || complain "eval of a run with unused parameters"
# seed 2 begins elsewhere, but a file that it begins with says what stays
"$tutti" train unused.c $small --seed 2 --out seed2 2>/dev/null || complain "unused parameters, seed 2"
"$tutti" train unused.c $small --seed 2 --init unused/checkpoint/step-*/weights.safetensors --out from 2>/dev/null || complain "unused parameters, --init"
"$tutti" train --resume from --steps 15 --quiet 2>/dev/null || complain "unused parameters, --resume"
cat >unused.py <<'P'
import json, struct, sys
def aux(path):
    data = open(path, "rb").read()
    length = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + length])
    begin, end = head["aux1.weight"]["data_offsets"]
    return data[8 + length + begin:8 + length + end]
first, other, begun, resumed = map(aux, sys.argv[1:])
sys.exit(not (first == begun == resumed != other and any(first)))
P
python3 unused.py unused/checkpoint/step-*/weights.safetensors seed2/checkpoint/step-*/weights.safetensors \
    from/checkpoint/step-*10/weights.safetensors from/checkpoint/step-*15/weights.safetensors ||
    complain "unused parameters do not stay as they began"
"$tutti" fed simulate unused.c --data fashion-mnist --limit 400 -p 2 --rounds 2 --out unused-fed --quiet 2>err.txt >/dev/null ||
    grep -q 'without federated learning' err.txt || complain "unused parameters in a federation: $(cat err.txt)"
[ ! -d unused-fed ] || "$tutti" eval unused-fed >/dev/null || complain "eval of a federation with unused parameters"

cmake --install "$build" --prefix "$work/prefix" >/dev/null || complain install
export PKG_CONFIG_PATH=$work/$(dirname "$(find prefix -name tutti.pc)")
cc "$root/examples/train_program.c" $(pkg-config --cflags --libs tutti) ${TUTTI_TEST_CFLAGS:-} -o program || complain "linking with the shared library"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") ./program out 4000 >out.txt || complain "the program: $(cat out.txt)"
grep -q 'validation accuracy' out.txt || complain "the program says: $(cat out.txt)"
cc "$root/examples/train_program.c" $(pkg-config --cflags tutti) "$(find prefix -name libtutti.a)" \
    $(pkg-config --static --libs-only-l tutti | sed 's/-ltutti//') ${TUTTI_TEST_CFLAGS:-} -o static || complain "linking with the static library"
./static out-static 4000 >out2.txt || complain "the static program"
cmp -s out.txt out2.txt || complain "shared and static libraries train differently"
cat >reconstruct.c <<'C'
#include <math.h>
#include "my_autoencoder.c"
int main(void)
{
    struct tutti_settings *settings;
    struct tutti_result result;
    if (tutti_settings_create(&settings) || tutti_settings_set(settings, "data", "fashion-mnist") ||
        tutti_settings_set(settings, "limit", "1000") || tutti_settings_set(settings, "steps", "20") ||
        tutti_settings_set(settings, "out", "reconstruct") || tutti_train(settings, my_autoencoder, &result))
        return 1;
    tutti_settings_destroy(settings);
    return !(isnan(result.val_accuracy) && isnan(result.train_accuracy) && result.val_loss > 0);
}
C
# A run of a program is used and resumed by tutti; its model is in its folder.
(cd elsewhere && mv ../out program-run && "$tutti" eval program-run >eval.txt) || complain "eval of a program's run"
(cd elsewhere && "$tutti" train --resume program-run --epochs 3 --quiet) || complain "a program's run is not resumed"
grep -q '"model_file": "model.json"' elsewhere/program-run/config.json || complain "a program's run names no model file"
sed -i 's/\(.*"limit", "1000".*\)/\1 tutti_settings_set(settings, "model", "cnn") ||/; s/"out", "reconstruct"/"out", "named"/' reconstruct.c
cc reconstruct.c -I"$root/examples" $(pkg-config --cflags --libs tutti) ${TUTTI_TEST_CFLAGS:-} -o named-program || complain "linking a model with a name"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") ./named-program && complain "a function may have the name of the zoo's cnn"
sed -i 's/"model", "cnn"/"data", "fashion-mnist"/; s/"out", "named"/"out", "reconstruct"/' reconstruct.c
cc reconstruct.c -I"$root/examples" $(pkg-config --cflags --libs tutti) ${TUTTI_TEST_CFLAGS:-} -o reconstruct-program || complain "linking a model without classes"
LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") ./reconstruct-program || complain "a model without classes in a program"
"$tutti" eval reconstruct >/dev/null || complain "eval of a program's run without classes"
[ -s reconstruct/reconstructions.png ] || complain "a model without classes in a program: no picture"
# A function that adds other layers when it is called again is found out before a folder is made.
cat >again.c <<'C'
#include <tutti.h>

static int calls;

static struct tutti_value *again(struct tutti_graph *g, struct tutti_value *x, int classes)
{
    x = tutti_flatten(g, "flat", x);
    if (calls++ > 0)
        x = tutti_linear(g, "more", x, 30);
    return tutti_linear(g, "fc", x, classes);
}

TUTTI_MODEL(again)
C
refused 2 'parameter more.weight is not the same in training and in evaluation' "$tutti" train again.c --data fashion-mnist --limit 64 --steps 1 --out again
[ ! -e again ] || complain "a model that changes has a folder"
if cc -x c++ -fsyntax-only /dev/null 2>/dev/null; then
    cc -x c++ -fsyntax-only $(pkg-config --cflags tutti) - <<<'#include <tutti.h>' || complain "the header is no C++"
else
    leave_out "the header in C++: no C++ compiler"
fi
finish
