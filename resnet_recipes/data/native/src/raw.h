// Resize a part of an image that is stored as pixels.
#pragma once
#include "source.h"
#include "workspace.h"

Status resize_raw(Bytes bytes, Row &row, Workspace &work, const Instructions &instructions);
