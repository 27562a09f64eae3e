#include "model/weights.h"

#include "base/error.h"
#include "base/printable.h"

namespace ridge {
namespace {

// A wanted dimension, with the words that explain it in an error.
struct Dim {
    int64_t size;
    std::string_view meaning;
};

class TensorFinder {
  public:
    explicit TensorFinder(const ModelFile& file) : file_(file) {}

    Tensor vector(const std::string& name, Dim d) const { return checked(required(name), {d}); }
    Tensor matrix(const std::string& name, Dim out, Dim in) const {
        return checked(required(name), {out, in});
    }
    Linear linear(const std::string& name, Dim out, Dim in) const {
        Linear linear{matrix(name + ".weight", out, in), {}};
        if (const Tensor* bias = file_.find(name + ".bias")) {
            linear.bias = checked(*bias, {out});
        }
        return linear;
    }

  private:
    const Tensor& required(const std::string& name) const {
        const Tensor* tensor = file_.find(name);
        if (tensor == nullptr)
            throw Error("{}: tensor {} is missing", printable(file_.path()), name);
        return *tensor;
    }

    const Tensor& checked(const Tensor& tensor, std::initializer_list<Dim> dims) const {
        bool right = tensor.n_dims == static_cast<int>(dims.size());
        std::string sizes, meanings;
        int i = 0;
        for (const Dim& dim : dims) {
            right = right && tensor.shape[static_cast<size_t>(i)] == dim.size;
            sizes += fmt::format("{}{}", i == 0 ? "" : ", ", dim.size);
            meanings += fmt::format("{}{}", i == 0 ? "" : ", ", dim.meaning);
            i++;
        }
        if (right) return tensor;
        throw Error("{}: tensor {} is {}, expected [{}] ({})", printable(file_.file_of(tensor)),
                    printable(tensor.name), shape_text(tensor), sizes, meanings);
    }

    const ModelFile& file_;
};

Layer read_layer(const TensorFinder& find, const Config& c, int index) {
    std::string prefix = fmt::format("blk.{}.", index);
    Dim model{c.d_model, "d_model"}, head{c.d_head, "d_head"}, ff{c.d_ff, "d_ff"};
    Dim q{c.d_q(), "n_heads * d_head"}, kv{c.d_kv(), "n_kv_heads * d_head"};
    Layer layer;
    layer.index = index;
    layer.attn_norm = find.vector(prefix + "attn_norm.weight", model);
    layer.q = find.linear(prefix + "attn_q", q, model);
    layer.k = find.linear(prefix + "attn_k", kv, model);
    layer.v = find.linear(prefix + "attn_v", kv, model);
    if (c.qk_norm) {
        layer.q_norm = find.vector(prefix + "attn_q_norm.weight", head);
        layer.k_norm = find.vector(prefix + "attn_k_norm.weight", head);
    }
    layer.o = find.linear(prefix + "attn_output", model, q);
    layer.ffn_norm = find.vector(prefix + "ffn_norm.weight", model);
    layer.gate = find.linear(prefix + "ffn_gate", ff, model);
    layer.up = find.linear(prefix + "ffn_up", ff, model);
    layer.down = find.linear(prefix + "ffn_down", model, ff);
    return layer;
}

}  // namespace

Weights read_weights(const ModelFile& file, const Config& config) {
    TensorFinder find(file);
    Dim model{config.d_model, "d_model"}, vocab{config.n_vocab, "n_vocab"};
    Weights weights;
    weights.embedding = find.matrix("token_embd.weight", vocab, model);
    if (const Tensor* beyond = file.find(fmt::format("blk.{}.attn_norm.weight", config.n_layers))) {
        throw Error("{}: has the tensor {}, but the model has {} layers",
                    printable(file.file_of(*beyond)), printable(beyond->name), config.n_layers);
    }
    for (int i = 0; i < config.n_layers; i++) weights.layers.push_back(read_layer(find, config, i));
    weights.output_norm = find.vector("output_norm.weight", model);
    weights.head =
        config.tied_head ? Linear{weights.embedding, {}} : find.linear("output", vocab, model);
    return weights;
}

}  // namespace ridge
