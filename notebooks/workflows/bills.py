"""Draw bill length over bill depth; a node of report.yaml runs this, so `inputs` is there."""

import matplotlib.pyplot as plt
import pandas as pd

data = pd.read_csv(inputs["data_path"]).dropna(subset=["bill_length_mm", "bill_depth_mm"])
figure, axes = plt.subplots()
for name, group in data.groupby("species"):
    axes.scatter(group["bill_depth_mm"], group["bill_length_mm"], s=12, label=name)
axes.set(xlabel="bill depth (mm)", ylabel="bill length (mm)")
axes.legend()
figure.savefig("bills.png")
{"rows": len(data)}
