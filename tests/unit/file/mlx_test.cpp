#include <algorithm>
#include <random>

#include "base/half.h"
#include "base/json.h"
#include "raw_gguf.h"
#include "raw_safetensors.h"
#include "test_files.h"

namespace ridge {
namespace {

// A quantised weight [n_rows, n_cols] and what it stands for, computed here from the definition:
// scale * code + bias, codes from the low bits of each 32-bit word up.
struct AffineWeight {
    std::vector<RawWeight> tensors;  // codes, scales, biases
    std::vector<float> values;       // [n_rows, n_cols]
};

AffineWeight make_affine(const std::string& module, int n_rows, int n_cols, int bits,
                         int group_size, const std::string& scale_type, std::mt19937& random) {
    std::vector<uint32_t> words(static_cast<size_t>(n_rows * n_cols * bits / 32));
    for (uint32_t& word : words) word = static_cast<uint32_t>(random());
    std::string codes, scales, biases;
    for (uint32_t word : words) codes += raw(word);
    std::vector<float> scale_values, bias_values;
    auto add = [&](std::string& out, std::vector<float>& values) {
        float x = std::uniform_real_distribution<float>(-1, 1)(random);
        if (scale_type == "F32") out += raw(x);
        if (scale_type == "F16") out += raw(to_f16(x).bits), x = to_float(to_f16(x));
        if (scale_type == "BF16") out += raw(to_bf16(x).bits), x = to_float(to_bf16(x));
        values.push_back(x);
    };
    for (int i = 0; i < n_rows * n_cols / group_size; i++) {
        add(scales, scale_values);
        add(biases, bias_values);
    }
    AffineWeight weight;
    for (int i = 0; i < n_rows * n_cols; i++) {
        size_t group = static_cast<size_t>(i / group_size), bit = static_cast<size_t>(i * bits);
        uint32_t code = (words[bit / 32] >> (bit % 32)) & ((1u << bits) - 1);
        float product = scale_values[group] * static_cast<float>(code);
        weight.values.push_back(product + bias_values[group]);
    }
    weight.tensors = {{module + ".weight", "U32", {n_rows, n_cols * bits / 32}, codes},
                      {module + ".scales", scale_type, {n_rows, n_cols / group_size}, scales},
                      {module + ".biases", scale_type, {n_rows, n_cols / group_size}, biases}};
    return weight;
}

void append(std::vector<RawWeight>& to, const std::vector<RawWeight>& tensors) {
    to.insert(to.end(), tensors.begin(), tensors.end());
}

void expect_values(const ModelFile& file, const std::string& name, const AffineWeight& weight) {
    SCOPED_TRACE(name);
    const Tensor* tensor = file.find(name);
    ASSERT_NE(tensor, nullptr);
    ASSERT_EQ(tensor->n_elements(), static_cast<int64_t>(weight.values.size()));
    std::vector<float> row(static_cast<size_t>(tensor->n_cols()));
    for (int64_t i = 0; i < tensor->n_rows(); i++) {
        unpack_row(*tensor, i, row.data());
        for (size_t j = 0; j < row.size(); j++) {
            ASSERT_EQ(row[j], weight.values[static_cast<size_t>(i) * row.size() + j])
                << "row " << i << ", column " << j;
        }
    }
}

std::string quantization(const std::string& body) {
    return R"({"model_type":"llama","quantization":{)" + body + "}}";
}

TEST(Mlx, codes_scales_and_biases_become_one_tensor_of_the_right_values) {
    unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    for (int bits : {4, 8}) {
        for (int group_size : {32, 64, 128}) {
            for (const char* scale_type : {"F32", "F16", "BF16"}) {
                AffineWeight weight = make_affine("model.layers.2.mlp.up_proj", 3, 256, bits,
                                                  group_size, scale_type, random);
                std::shuffle(weight.tensors.begin(), weight.tensors.end(), random);
                TestFolder folder;
                folder.write("config.json",
                             quantization(R"("group_size":)" + std::to_string(group_size) +
                                          R"(,"bits":)" + std::to_string(bits)));
                folder.write("model.safetensors", safetensors_bytes(weight.tensors));
                ModelFile file = ModelFile::open(folder.path());
                ASSERT_EQ(file.tensor_names(), std::vector<std::string>{"blk.2.ffn_up.weight"});
                const Tensor& tensor = file.tensor(0);
                EXPECT_EQ(tensor.format->id, bits == 4 ? FormatId::kAffine4 : FormatId::kAffine8);
                EXPECT_EQ(tensor.group_size, group_size);
                EXPECT_EQ(format_of(tensor.scale_format).name, scale_type);
                EXPECT_EQ(shape_text(tensor), "[3, 256]");
                int64_t n_file_bytes = 0;
                for (const RawWeight& raw : weight.tensors) {
                    n_file_bytes += static_cast<int64_t>(raw.data.size());
                }
                EXPECT_EQ(tensor.n_bytes(), n_file_bytes);
                expect_values(file, "blk.2.ffn_up.weight", weight);
                file.drop_pages(tensor);
                expect_values(file, "blk.2.ffn_up.weight", weight);
            }
        }
    }
}

TEST(Mlx, overrides_of_single_modules_are_honoured) {
    unsigned seed = std::random_device()();
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    AffineWeight head = make_affine("lm_head", 2, 128, 8, 32, "F16", random);
    AffineWeight up = make_affine("model.layers.0.mlp.up_proj", 4, 64, 4, 64, "BF16", random);
    AffineWeight down = make_affine("model.layers.0.mlp.down_proj", 4, 64, 4, 64, "F32", random);
    std::vector<RawWeight> tensors = {
        {"model.embed_tokens.weight", "F32", {1, 2}, raw(1.0f) + raw(2.0f)}};
    append(tensors, head.tensors);
    append(tensors, up.tensors);
    append(tensors, down.tensors);
    TestFolder folder;
    folder.write("config.json",
                 quantization(R"("group_size":64,"bits":4,"mode":"affine",)"
                              R"("model.embed_tokens":false,"model.layers.0.mlp.down_proj":true,)"
                              R"("lm_head":{"group_size":32,"bits":8,"mode":"affine"})"));
    folder.write("model.safetensors", safetensors_bytes(tensors));
    ModelFile file = ModelFile::open(folder.path());
    expect_values(file, "output.weight", head);
    expect_values(file, "blk.0.ffn_up.weight", up);
    expect_values(file, "blk.0.ffn_down.weight", down);
    EXPECT_EQ(file.find("token_embd.weight")->format->id, FormatId::kF32);
}

TEST(Mlx, the_configuration_may_stand_under_its_newer_name) {
    std::mt19937 random(1);
    AffineWeight head = make_affine("lm_head", 2, 128, 8, 32, "F16", random);
    TestFolder folder;
    folder.write("config.json", R"({"quantization":null,)"
                                R"("quantization_config":{"group_size":32,"bits":8}})");
    folder.write("model.safetensors", safetensors_bytes(head.tensors));
    expect_values(ModelFile::open(folder.path()), "output.weight", head);
}

// A valid 4-bit weight [2, 64] in groups of 32, free to be made wrong.
struct MlxFault {
    std::string config = quantization(R"("group_size":32,"bits":4)");
    std::vector<RawWeight> tensors;

    MlxFault() {
        std::mt19937 random(1);
        tensors = make_affine("lm_head", 2, 64, 4, 32, "F16", random).tensors;
    }
    void expect_refused(const std::vector<std::string>& says) const {
        TestFolder folder;
        folder.write("config.json", config);
        folder.write("model.safetensors", safetensors_bytes(tensors));
        std::string message = open_error(folder.path());
        expect_parts(message, {folder.path()});
        expect_parts(message, says);
    }
};

TEST(Mlx, other_widths_group_sizes_and_modes_are_refused_by_name) {
    for (int bits : {0, 1, 2, 3, 5, 6, 7, 16, 1 << 30}) {
        MlxFault fault;
        fault.config = quantization(R"("group_size":32,"bits":)" + std::to_string(bits));
        fault.expect_refused(
            {"config.json", "quantization.bits is " + std::to_string(bits), "4 or 8"});
        fault.config =
            quantization(R"("group_size":32,"bits":4,"lm_head":{"group_size":32,"bits":)" +
                         std::to_string(bits) + '}');
        fault.expect_refused({"quantization.lm_head.bits is " + std::to_string(bits), "4 or 8"});
    }
    const std::pair<const char*, std::vector<std::string>> kSettings[] = {
        {R"("bits":4)", {"quantization.group_size is missing"}},
        {R"("group_size":32)", {"quantization.bits is missing"}},
        {R"("group_size":16,"bits":4)", {"quantization.group_size is 16", "32, 64 or 128"}},
        {R"("group_size":0,"bits":4)", {"quantization.group_size is 0"}},
        {R"("group_size":-32,"bits":4)", {"quantization.group_size is -32"}},
        {R"("group_size":32,"bits":4.0)", {"quantization.bits is 4.0"}},
        {R"("group_size":32,"bits":"4")", {"quantization.bits is \"4\""}},
        {R"("group_size":32,"bits":4,"mode":"mxfp4")",
         {"quantization.mode is \"mxfp4\"", "affine"}},
        {R"("group_size":32,"bits":4,"lm_head":7)", {"quantization.lm_head is 7"}},
        {R"("group_size":32,"bits":4,"lm_head":{"bits":4})",
         {"quantization.lm_head.group_size is missing"}},
        {R"("group_size":32,"bits":4,"lm_head":false)", {"lm_head.weight", "U32", "not quantised"}},
    };
    for (const auto& [settings, says] : kSettings) {
        MlxFault fault;
        fault.config = quantization(settings);
        fault.expect_refused(says);
    }
}

TEST(Mlx, other_methods_of_quantisation_are_refused_by_name) {
    MlxFault fault;
    fault.config = R"({"quantization_config":{"quant_method":"gptq","bits":4,"group_size":32}})";
    fault.expect_refused({"config.json", "quant_method is \"gptq\""});
    fault.config = R"({"quantization":"int4"})";
    fault.expect_refused({"config.json", "quantization is \"int4\""});
    fault.config = "{}";
    fault.expect_refused({"config.json", "lm_head.weight", "quantization"});
}

TEST(Mlx, planes_that_do_not_fit_together_are_refused) {
    MlxFault fault;
    fault.tensors.pop_back();
    fault.expect_refused({"lm_head.weight", "U32", "no lm_head.biases"});
    fault = {};
    fault.tensors.erase(fault.tensors.begin() + 1);
    fault.expect_refused({"lm_head.weight", "U32", "no lm_head.scales"});
    fault = {};
    fault.tensors[1].shape = {1, 4};
    fault.expect_refused({"lm_head.scales", "[1, 4]", "expected [2, 2]"});
    fault = {};
    fault.tensors[2].shape = {4};
    fault.expect_refused({"lm_head.biases", "[4]", "expected [2, 2]"});
    fault = {};
    fault.tensors[2].dtype = "BF16";
    fault.expect_refused({"lm_head.biases", "BF16", "F16"});
    fault = {};
    fault.tensors[1].dtype = "I16";
    fault.expect_refused({"lm_head.scales", "I16", "BF16"});
    fault = {};
    fault.tensors[0].shape = {2, 2, 4};
    fault.expect_refused({"lm_head.weight", "[2, 2, 4]", "[rows, words]"});
    fault = {};
    fault.config = quantization(R"("group_size":32,"bits":8)");
    fault.expect_refused({"lm_head.scales", "[2, 2]", "expected [2, 1]", "8 bits"});
    fault = {};
    fault.config = quantization(R"("group_size":128,"bits":4)");
    fault.expect_refused({"lm_head.scales", "[2, 2]", "groups of 128"});
    fault = {};
    fault.tensors[0] = {"lm_head.weight", "F32", {1}, raw(1.0f)};
    fault.expect_refused({"lm_head.weight", "F32", "U32", "lm_head.scales"});
}

}  // namespace
}  // namespace ridge
