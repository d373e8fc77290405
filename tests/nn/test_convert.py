from __future__ import annotations

import copy
import pickle
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrize, prune

from evodrop.nn import (
    BernoulliDropout,
    DataDependentDropout,
    EvolutionalDropout,
    EvolutionalDropout1d,
    EvolutionalDropout2d,
    EvolutionalDropout3d,
    MultinomialDropout,
    convert_dropout,
)
from evodrop.nn.zoo import ZOO, Standout, WeightAwareLinear, penalties
from evodrop.nn.zoo._base import UnitDropout


def nested():
    return nn.ModuleDict(
        {
            "features": nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout2d(0.1), nn.Sequential(nn.Dropout1d(0.2))),
            "head": nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.3, inplace=True), nn.Dropout3d(0.4)),
        }
    )


def test_swaps_nested_layers_and_keeps_rates():
    model = nested()
    assert convert_dropout(model) is model
    swapped = {name: layer for name, layer in model.named_modules() if "Dropout" in type(layer).__name__}
    assert {name: (type(layer), layer.p) for name, layer in swapped.items()} == {
        "features.1": (EvolutionalDropout2d, 0.1),
        "features.2.0": (EvolutionalDropout1d, 0.2),
        "head.1": (EvolutionalDropout, 0.3),
        "head.2": (EvolutionalDropout3d, 0.4),
    }


def test_keeps_train_and_eval_mode_layer_by_layer():
    model = nested()
    model["head"].eval()
    convert_dropout(model)
    assert model["features"][1].training
    assert not model["head"][1].training


def test_only_is_a_function():
    with pytest.raises(TypeError, match="only is '2', but it takes a function"):
        convert_dropout(nested(), only="2")


def test_only_what_the_predicate_names():
    model = convert_dropout(nested(), only=lambda name, layer: name.startswith("head") and layer.p == 0.3)
    assert type(model["head"][1]) is EvolutionalDropout
    assert type(model["features"][1]) is nn.Dropout2d


@pytest.mark.parametrize("to", [BernoulliDropout, MultinomialDropout, lambda p: EvolutionalDropout(p, unit_dims=-1)])
def test_to_any_layer_that_takes_a_rate(to):
    model = convert_dropout(nested(), to=to)
    assert type(model["head"][1]) is type(to(0.5))
    assert type(model["features"][1]) is type(to(0.5))


def test_a_layer_in_two_places_stays_one_layer():
    layer = nn.Dropout(0.5)
    model = nn.Sequential(layer, nn.Linear(2, 2), layer)
    model.register_module("again", layer)
    convert_dropout(model)
    assert type(model[0]) is EvolutionalDropout
    assert model[0] is model[2] is model.again


def test_a_dropout_layer_itself_is_replaced():
    assert isinstance(convert_dropout(nn.Dropout(0.5)), EvolutionalDropout)


def test_a_layer_that_is_switched_off_stays_off():
    with pytest.warns(UserWarning, match=r"nothing was swapped.*its other dropouts are '0' \(Dropout\)"):
        model = convert_dropout(nn.Sequential(nn.Dropout(0.0)))
    assert type(model[0]) is nn.Dropout


class Own(nn.Dropout):
    """A dropout that somebody gave a name."""


class Scaled(nn.Dropout):
    """A dropout that computes something else."""

    def forward(self, input):
        return 2 * super().forward(input)


def test_subclasses_are_swapped_if_they_compute_the_same():
    model = convert_dropout(nn.Sequential(nn.Linear(2, 2), Own(0.2), Scaled(0.3), with_own_forward(nn.Dropout(0.4))))
    assert [type(layer) for layer in model[1:]] == [EvolutionalDropout, Scaled, nn.Dropout]


def test_what_is_there_instead_is_named_if_nothing_was_swapped():
    model = nn.ModuleDict({"a": nn.LSTM(2, 2, 2, dropout=0.1), "b": nn.AlphaDropout(), "c": nn.Linear(2, 2)})
    with pytest.warns(UserWarning, match=r"'a' \(LSTM\), 'b' \(AlphaDropout\); .*functional=True reaches F.dropout"):
        convert_dropout(model)
    with pytest.warns(UserWarning, match=r"not swapped though it acts: dropout in 'the model' .*test_convert.py:\d+"):
        convert_dropout(Functional(), inputs=torch.ones(2, 3))


class Functional(nn.Module):
    """A model that calls dropout as a function."""

    def __init__(self):
        super().__init__()
        self.unused, self.norm = nn.Dropout(0.2), nn.LayerNorm(3)

    def forward(self, x):
        return F.dropout(self.norm(x), 0.4, self.training)


def test_layers_that_are_swapped_but_never_called_are_named():
    with pytest.warns(UserWarning, match=r"swapped but never called with these inputs: 'unused'; not swapped though"):
        model = convert_dropout(Functional(), inputs=(torch.ones(2, 3),))
    assert type(model.unused) is EvolutionalDropout


def test_all_that_does_not_fit_is_said_at_once():
    model = nn.Sequential(nn.Dropout(0.5), nn.Tanh(), nn.Dropout(0.4), nn.Linear(2, 2), nn.Dropout(0.3))
    refused(model, "dropconnect", r"layer '0', (?s:.)*layer '2', (?!(?s:.)*layer '4')")


@pytest.mark.parametrize(("name", "options"), [("evolutional", {}), ("uniform", {}), ("water-filling", {})])
def test_the_noise_level_is_kept_unless_the_user_says_otherwise(name, options):
    convert = partial(convert_dropout, to=name, **options)
    assert convert(nn.Sequential(nn.Dropout(0.1)))[0].match == "noise"
    assert convert(nn.Sequential(nn.Dropout(0.1)), match="draws")[0].match == "draws"
    assert (
        convert(nn.Sequential(nn.Dropout(0.1)), k=3)[0].k,
        convert(nn.Sequential(nn.Dropout(0.1)), k=3)[0].match,
    ) == (
        3,
        "draws",
    )
    assert convert_dropout(nn.Sequential(nn.Dropout(0.1)), ZOO[name])[0].match == "noise"
    own = convert_dropout(nn.Sequential(nn.Dropout(0.1)), lambda p: ZOO[name](p, unit_dims=-1))
    assert own[0].match == "draws"


@pytest.mark.parametrize(
    ("layers", "unit_dims"),
    [
        ([nn.Linear(4, 4), nn.ReLU()], -1),
        ([nn.Embedding(4, 4)], -1),
        ([nn.Conv2d(1, 4, 3), nn.LayerNorm(4)], -1),
        ([nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2)], None),
        ([nn.Conv1d(1, 4, 3)], (1, 2)),
        ([nn.Softmax(-1)], None),
    ],
)
def test_the_layers_beside_a_dropout_choose_its_units(layers, unit_dims):
    assert convert_dropout(nn.Sequential(*layers, nn.Dropout(0.5)))[-1].unit_dims == unit_dims
    after = [nn.Softmax(-1), nn.Dropout(0.5), *reversed(layers)]
    assert convert_dropout(nn.Sequential(*after), "uniform")[1].unit_dims == unit_dims
    for given in (None, (1,)):  # the user decides
        assert convert_dropout(nn.Sequential(*layers, nn.Dropout(0.5)), unit_dims=given)[-1].unit_dims == given
    assert convert_dropout(nn.Sequential(*layers, nn.Dropout(0.5)), shared_dims=1)[-1].unit_dims is None


class Hidden(nn.Module):
    """Not an nn.Sequential, and a sum before the dropout."""

    def __init__(self):
        super().__init__()
        self.fc, self.drop = nn.Linear(4, 4), nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(x + self.fc(x))


def test_the_inputs_choose_units_where_no_layer_does():
    assert convert_dropout(Hidden()).drop.unit_dims is None
    assert convert_dropout(Hidden(), inputs=torch.ones(2, 4)).drop.unit_dims is None
    assert convert_dropout(Hidden(), inputs={"x": torch.ones(2, 3, 4)}).drop.unit_dims == -1


def test_work_in_place_goes_on():
    model = convert_dropout(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5, inplace=True)))
    for layer in (model[1], copy.deepcopy(model)[1], pickle.loads(pickle.dumps(model))[1]):
        x = torch.ones(20, 4)
        assert layer(x) is x
        assert (x != 1).any()
        x = torch.ones(20, 4)
        assert layer.eval()(x) is x
        assert (x == 1).all()
    model.train()(torch.randn(20, 4)).sum().backward()
    assert torch.isfinite(model[0].weight.grad).all()
    assert convert_dropout(nn.Sequential(nn.Dropout(0.5, inplace=True)), "standard")[0].inplace


def test_inputs_that_do_not_fit_leave_the_model_as_it_was():
    model = Hidden().eval()
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        convert_dropout(model, inputs=torch.ones(2, 5))
    assert type(model.drop) is nn.Dropout
    assert not model.training


def test_a_function_that_makes_no_module_is_named_and_nothing_is_changed():
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2), nn.Dropout(0.3))
    made = iter([nn.Identity(), None])
    with pytest.raises(TypeError, match=r"layer '2', Dropout\(p=0.3.*returned None for its rate, but it has to"):
        convert_dropout(model, lambda _: next(made))
    assert [type(layer) for layer in model] == [nn.Linear, nn.Dropout, nn.Dropout]


def test_parameters_that_a_wrapper_does_not_know_are_refused(tmp_path):
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/meeting", rank=0, world_size=1)
    try:
        wrapped = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.2)))
        for name in ("variational", "adaptive-rate"):
            with pytest.raises(ValueError, match=r"would not average the gradients.*; convert the model first"):
                convert_dropout(wrapped, name)
            assert type(wrapped.module[1]) is nn.Dropout
        assert type(convert_dropout(wrapped).module[1]) is EvolutionalDropout
    finally:
        torch.distributed.destroy_process_group()


def test_a_rate_that_cannot_be_kept_is_named_and_nothing_is_changed():
    model = nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(1.0)))
    with pytest.raises(ValueError, match=r"layer '1.0', Dropout\(p=1.0.*dropout rate is 1.0"):
        convert_dropout(model, "gaussian")
    assert type(model[0]) is nn.Dropout
    assert not convert_dropout(model)[1](torch.ones(2, 3)).any()  # at rate 1 nothing is left


def test_a_transformer_trains_after_the_swap():
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.2, batch_first=True)
    convert_dropout(layer, to=lambda p: EvolutionalDropout(p, unit_dims=-1))
    assert type(layer.dropout1) is EvolutionalDropout
    layer(torch.randn(2, 5, 16)).sum().backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in layer.parameters())
    assert layer.eval()(torch.randn(2, 5, 16)).shape == (2, 5, 16)


class NoisyLinear(nn.Linear):
    """A stand-in for noise on weights: it takes over the layer after the dropout, and brings a parameter along."""

    needs = frozenset({"after"})

    def __init__(self, p, like):
        super().__init__(1, 1)
        self.p, self.weight, self.bias = p, like.weight, like.bias
        self.extra = nn.Parameter(torch.zeros(1))

    @classmethod
    def place(cls, site, **options):
        if not isinstance(site.after, nn.Linear):
            raise ValueError(f"NoisyLinear takes the place of a Linear, not of {site.after}")
        return site._replace(dropout=nn.Identity(), after=cls(site.dropout.p, site.after, **options))


class NoisyPair(NoisyLinear):
    """A stand-in that takes over both neighbours."""

    needs = frozenset({"before", "after"})

    @classmethod
    def place(cls, site, **options):
        p = site.dropout.p
        return site._replace(
            before=cls(p, site.before, **options), dropout=nn.Identity(), after=cls(p, site.after, **options)
        )


class Onlooker(UnitDropout):
    """A stand-in that looks at the layers beside it, and leaves them alone."""

    needs = frozenset({"after"})

    @classmethod
    def place(cls, site):
        layer = cls(site.dropout.p)
        layer.seen = (site.before, (*site.between, site.after))
        return site._replace(dropout=layer)

    def forward(self, input):
        return input


class Written(nn.Module):
    """A model of which nothing is an nn.Sequential."""

    def __init__(self):
        super().__init__()
        self.conv, self.drop2, self.drop = nn.Conv2d(1, 4, 3), nn.Dropout2d(0.1), nn.Dropout(0.2)
        self.fc1, self.fc2, self.norm = nn.Linear(16, 8), nn.Linear(8, 2), nn.BatchNorm1d(8)

    def forward(self, x, scale=None):
        x = F.max_pool2d(F.relu(self.drop2(self.conv(x))), 2)
        if scale is not None:
            x = x * scale
        x = self.norm(self.fc1(x.view(x.size(0), -1))).relu()
        return self.fc2(self.drop(x))


def perceptron():
    return nn.Sequential(
        nn.Linear(4, 6),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Sequential(nn.Linear(6, 5), nn.Tanh()),
        nn.Dropout(0.3),
        nn.Linear(5, 2),
    )


@pytest.mark.parametrize("name", sorted(set(ZOO) - {"data-dependent"}))
def test_every_name_of_the_zoo_trains(name):
    model = convert_dropout(perceptron(), name)
    assert not any(type(layer) is nn.Dropout for layer in model.modules()) or name == "standard"
    x = torch.randn(8, 4)
    (model(x).square().mean() + penalties(model) / 8).backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    torch.testing.assert_close(model.eval()(x), model(x))


def test_an_option_that_a_dropout_does_not_take_is_told_with_layer_and_class():
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))
    with pytest.raises(TypeError, match=r"layer '1'.*GaussianDropout was given unit_dims=-1, but .*unit_dims"):
        convert_dropout(model, "gaussian", unit_dims=-1)


def test_a_name_passes_options_on():
    assert convert_dropout(nested(), "uniform", match="noise")["head"][1].match == "noise"
    assert convert_dropout(nn.Sequential(nn.Dropout(0.3)), "adaptive-rate", concentration=5.0)[0].concentration == 5


def test_dropout_of_whole_channels_goes_on_to_be_that():
    assert type(convert_dropout(nested(), "evolutional")["features"][1]) is EvolutionalDropout2d
    assert type(convert_dropout(nested(), "standard")["features"][1]) is nn.Dropout2d


def test_unknown_names_and_missing_data_are_named():
    with pytest.raises(ValueError, match=r"dropout 'gauss' is not in the zoo; it has 'adaptive-rate', "):
        convert_dropout(nested(), "gauss")
    with pytest.raises(ValueError, match=r"put DataDependentDropout.from_data\(X, p\) in the place"):
        convert_dropout(nested(), "data-dependent")
    layer = convert_dropout(nn.Sequential(nn.Dropout(0.3)), "data-dependent", probs=torch.ones(4))[0]
    assert (type(layer), layer.p) == (DataDependentDropout, 0.3)


def test_arguments_of_the_wrong_kind_are_named():
    for model in (None, [nn.Dropout()], nn.Dropout):
        with pytest.raises(TypeError, match=r"model is .*, but it takes an nn.Module"):
            convert_dropout(model, "gaussian")
    for to in (None, 3, Standout(0.5, alpha=3.0)):  # its alpha would be lost
        with pytest.raises(TypeError, match=r"to is .*, but it takes a name of the zoo, a class, or a function"):
            convert_dropout(nested(), to)


def test_an_alpha_for_each_unit_takes_their_number_from_the_neighbours():
    model = convert_dropout(perceptron(), "variational", per="unit")
    assert [model[2].units, model[4].units] == [6, 5]
    assert model(torch.randn(2, 7, 4)).shape == (2, 7, 2)  # of a sequence too
    for inside, features in (([nn.Flatten()], 64), ([nn.MaxPool2d(2), nn.Flatten()], 16)):
        pictures = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Dropout(0.2), *inside, nn.Linear(features, 2))
        assert convert_dropout(pictures, "variational", per="unit")(torch.randn(3, 1, 6, 6)).shape == (3, 2)
    with pytest.raises(ValueError, match=r"layer '0', .*units is None, but the number of units is"):
        convert_dropout(nn.Sequential(nn.Dropout(0.2), nn.Tanh()), "variational", per="unit")


def test_neighbours_are_found_by_position():
    model = convert_dropout(perceptron(), Onlooker)
    assert model[2].seen == (model[0], (model[3][0],))
    assert model[4].seen == (model[3][0], (model[5],))


def test_neighbours_are_found_in_code():
    x = torch.randn(5, 1, 6, 6)
    model = convert_dropout(Written(), Onlooker, inputs=x)
    before, path = model.drop2.seen
    assert before is model.conv
    assert [type(layer) for layer in path] == [nn.Identity, nn.MaxPool2d, nn.Flatten, nn.Linear]
    assert path[-1] is model.fc1
    assert path[1].kernel_size == 2
    assert model.drop.seen == (model.fc1, (model.fc2,))
    model = convert_dropout(Written(), "weight-aware", inputs=x)
    assert (type(model.fc1), type(model.fc2)) == (WeightAwareLinear, WeightAwareLinear)
    model(x).sum().backward()
    assert torch.isfinite(model.conv.weight.grad).all()


def test_parameters_stay_the_same_objects():
    model = perceptron().double()
    weights = list(model.parameters())
    optimizer = torch.optim.SGD(weights, lr=0.1)
    model.eval()
    model[5].train()
    convert_dropout(model, NoisyLinear)
    assert [type(layer) for layer in (model[2], model[3][0], model[4], model[5])] == [nn.Identity, NoisyLinear] * 2
    assert all(any(weight is parameter for parameter in model.parameters()) for weight in weights)
    assert model[5].training
    assert not model[3][0].training
    assert model[5].extra.dtype == torch.float64
    before = model[5].weight.clone()
    model(torch.randn(3, 4, dtype=torch.float64)).sum().backward()
    optimizer.step()
    assert (model[5].weight != before).any()


def test_the_layer_after_one_dropout_stands_before_the_next():
    model = perceptron()
    inner = model[3][0].weight
    convert_dropout(model, NoisyPair)
    assert [type(model[i]) for i in (0, 5)] == [NoisyPair, NoisyPair]
    assert model[3][0].weight is inner
    assert (model[0].p, model[3][0].p, model[5].p) == (0.2, 0.3, 0.3)


def test_a_dropout_in_two_places_gets_the_neighbour_of_each():
    layer = nn.Dropout(0.5)
    model = convert_dropout(nn.Sequential(layer, nn.Linear(2, 2), layer, nn.Linear(2, 2)), Onlooker)
    assert model[0].seen[1] == (model[1],)
    assert model[2].seen[1] == (model[3],)


def test_a_tied_layer_is_replaced_where_the_dropout_is():
    tied = nn.Linear(2, 2)
    model = convert_dropout(nn.Sequential(tied, nn.ReLU(), nn.Dropout(0.5), tied), NoisyLinear)
    assert [type(model[0]), type(model[3])] == [nn.Linear, NoisyLinear]
    assert model[0].weight is model[3].weight


def refused(model, to, message, inputs=None):
    before = str(model)
    with pytest.raises(ValueError, match=message):
        convert_dropout(model, to, inputs=inputs)
    assert str(model) == before


class Twice(nn.Module):
    """One dropout and one layer, each called twice."""

    def __init__(self):
        super().__init__()
        self.drop, self.fc1, self.fc2 = nn.Dropout(0.5), nn.Linear(2, 2), nn.Linear(2, 2)

    def forward(self, x):
        return self.fc2(self.drop(self.fc1(self.drop(x))))


class Loop(Twice):
    def forward(self, x):
        return self.fc1(self.drop(self.fc1(x)))


class Residual(Twice):
    def forward(self, x):
        x = self.drop(x)
        return x + self.fc1(x)


class Skip(Twice):
    def forward(self, x):
        x = self.fc1(x)
        return self.fc2(x + self.drop(x.relu()))


def test_places_that_are_not_clear_are_named_and_nothing_is_changed():
    x = torch.randn(3, 2)
    refused(Twice(), "weight-aware", r"layer 'drop', Dropout.*used in 2 places with different neighbours; give each", x)
    refused(Loop(), NoisyLinear, r"layer 'drop', .*its neighbour 'fc1' is used in 2 places, and would change in all", x)
    refused(Twice(), "weight-aware", r"layer 'drop', .*in no nn.Sequential; give inputs= to find it\. Leave it out by")
    refused(Functional(), "weight-aware", r"layer 'unused', .*it is never called", torch.ones(2, 3))
    refused(
        Residual(), "weight-aware", r"layer 'drop', .*needs the layer with weights after it, but no single layer", x
    )
    refused(Skip(), "dropconnect", r"layer 'drop', .*needs the layer with weights before it, but no single layer", x)
    refused(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.5)), NoisyLinear, r"layer '1', .*place it by hand")
    refused(nn.Sequential(nn.Dropout(0.5), nn.LSTM(2, 2)), NoisyLinear, r"layer '0', .*another kind of layer")
    refused(
        nn.Sequential(nn.Dropout(0.5), nn.Conv1d(2, 2, 1)), NoisyLinear, r"layer '0', .*takes the place of a Linear"
    )
    refused(nn.Dropout(0.5), "weight-aware", r"layer '', .*it is the whole model")
    refused(nn.TransformerEncoderLayer(4, 1, 4), "weight-aware", r"layer 'dropout', .*give inputs=")
    block = nn.Sequential(nn.Dropout(0.5), nn.Linear(2, 2))
    refused(nn.Sequential(block, block), NoisyLinear, r"layer '0.0', .*'1' is used in 2 places")
    assert type(convert_dropout(Loop(), Onlooker, inputs=x).drop) is Onlooker  # which leaves its neighbour alone


class Doubled(nn.Linear):
    """A layer of somebody's own."""

    def forward(self, input):
        return 2 * super().forward(input)


PECULIAR = {
    "of another class": lambda: Doubled(6, 5),
    "parametrised": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(6, 5)),
    "pruned": lambda: prune.l1_unstructured(nn.Linear(6, 5), "weight", 0.5),
    "lazy": lambda: nn.LazyLinear(5),
    "with a pruned bias": lambda: prune.l1_unstructured(nn.Linear(6, 5), "bias", 0.5),
    "with a parametrised bias": lambda: parametrize.register_parametrization(nn.Linear(6, 5), "bias", nn.Tanh()),
    "with a forward of its own": lambda: with_own_forward(nn.Linear(6, 5)),
}


def with_own_forward(layer):
    """As tools do that move, time or quantise single layers."""
    plain = layer.forward
    layer.forward = lambda x: 2 * plain(x)
    return layer


@pytest.mark.parametrize("make", PECULIAR.values(), ids=PECULIAR)
def test_a_neighbour_that_is_more_than_its_weights_is_not_replaced(make):
    for to in ("fast", "variational-weights", "dropconnect", "weight-aware"):
        model = perceptron()
        model[3][0] = make()
        refused(model, to, r"layer '\d', Dropout.*\): a \w*(Linear|Doubled) cannot be replaced by \w+, which takes")
    model = perceptron()
    kept = model[3][0] = make()
    assert convert_dropout(model, "batchwise")[3][0] is kept
    model(torch.randn(8, 4)).sum().backward()


@pytest.mark.parametrize("to", ["fast", "variational-weights", "dropconnect", "weight-aware"])
def test_dropouts_in_a_row_do_not_replace_each_other(to):
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.ReLU(), nn.Dropout(0.3), nn.Linear(6, 2))
    refused(model, to, r"layer '3', .*has noise already")


def test_the_parts_of_a_model_that_are_sequences_need_no_inputs():
    inside = nn.ModuleDict({"a": perceptron(), "b": nn.Linear(2, 2)})
    assert convert_dropout(inside, Onlooker)["a"][4].seen[1][-1] is inside["a"][5]
    wall = nn.Sequential(nn.Linear(2, 2), Residual(), nn.Dropout(0.25), nn.ReLU(), nn.Linear(2, 2))
    convert_dropout(wall, Onlooker, only=lambda _, layer: layer.p == 0.25)
    assert wall[2].seen == (None, (wall[3], wall[4]))


def test_looking_for_neighbours_leaves_the_state_of_a_model_and_the_generator_alone():
    class Counting(Twice):
        def __init__(self):
            super().__init__()
            self.seen = []
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.seen.append(x)
            return self.fc1(self.drop(x + torch.rand(2)))

    model, x, state = Counting(), torch.ones(3, 2), torch.get_rng_state()
    convert_dropout(model, Onlooker, inputs=x)
    assert torch.equal(torch.get_rng_state(), state)
    assert (model.calls, model.seen) == (0, [])
    assert convert_dropout(Counting(), "weight-aware", inputs=x).fc1.weight.grad is None
