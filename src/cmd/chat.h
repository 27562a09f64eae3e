#pragma once

#include "cmd/command_line.h"
#include "cmd/options.h"

namespace ridge {

// Everything a conversation with a model is started with.
struct ChatSettings {
    OpenOptions open;
    SamplingOptions sampling;
    AnswerOptions answer;
    bool quiet = false;
    FromVariables from_variables;
};

// Opens the model and answers until the user leaves; returns the exit status.
int hold_conversation(const ChatSettings& settings);

}  // namespace ridge
